"""Errors as OpenAI's clients expect them: an HTTP status and `{"error": {message, type, param, code}}`."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from lead.engine.client import RETRY_AFTER_SECONDS
from lead.generation.admission import ContextExceededError
from shared.errors import (
    DuoError,
    NotServingError,
    ProtocolError,
    RequestError,
    UnavailableError,
    UnsupportedError,
)

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_MAX_MESSAGE_CHARACTERS = 2000
_NEVER = {"x-should-retry": "false"}
"""Tells the clients of OpenAI and Anthropic, which retry every 5xx, not to."""
_HTTP_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}


def install(app: FastAPI) -> None:
    """Make every error of `app` answer in this shape."""

    async def on_duo_error(_: Request, error: Exception) -> JSONResponse:
        return error_response(error)

    async def on_invalid(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return error_response(first_invalid(error))

    async def on_http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        headers = error.headers
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers = {"Allow": ", ".join(_allowed(request))}
        kind = _HTTP_TYPES.get(error.status_code, "invalid_request_error")
        return http_error(error.status_code, str(error.detail), kind, headers=headers)

    app.add_exception_handler(DuoError, on_duo_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)


def error_response(error: Exception, **fields: str) -> JSONResponse:
    """The response to a request that failed with `error`; `fields` stand beside it in the body."""
    headers = None
    if isinstance(error, UnavailableError):
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
        if isinstance(error, NotServingError):
            headers[NotServingError.HEADER] = "true"
    elif isinstance(error, UnsupportedError):
        headers = _NEVER
    return JSONResponse(fields | error_body(error), _status_and_type(error)[0], headers)


def http_error(
    status: int, message: str, kind: str, *, code: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """An error of HTTP itself, in the same shape."""
    return JSONResponse(_body(message, kind, code=code), status, headers)


def error_body(error: Exception) -> dict[str, Any]:
    """Only the body: the last event of a stream that has begun."""
    status, kind = _status_and_type(error)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return _body("the server failed; see its log", kind)
    body = _body(str(error), kind, getattr(error, "param", None), getattr(error, "code", None))
    if isinstance(error, ContextExceededError):
        body["error"] |= {"n_prompt_tokens": error.n_prompt, "n_ctx": error.n_ctx}
    return body


def _allowed(request: Request) -> Iterator[str]:
    """The methods of all routes at a path: Starlette names those of the first one."""
    for method in _METHODS:
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes):
            yield method


def _status_and_type(error: Exception) -> tuple[int, str]:
    match error:
        case ContextExceededError():
            return 400, "exceed_context_size_error"
        case RequestError() | ProtocolError():
            return 400, "invalid_request_error"
        case UnavailableError():
            return 503, "unavailable_error"
        case UnsupportedError():
            return 501, "not_supported_error"
        case _:
            return 500, "server_error"


def _body(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": _cut(message), "type": kind, "param": param and _cut(param), "code": code}}


def _cut(text: str) -> str:
    """Messages quote what a client has sent, which may be megabytes."""
    if len(text) <= _MAX_MESSAGE_CHARACTERS:
        return text
    half = _MAX_MESSAGE_CHARACTERS // 2
    return f"{text[:half]} … {text[-half:]}"


def first_invalid(error: RequestValidationError | ValidationError) -> RequestError:
    """The first of pydantic's errors as a RequestError."""
    if isinstance(error, ValidationError):
        item = error.errors(include_url=False, include_context=False, include_input=False)[0]
    else:
        item = error.errors()[0]
    path = [str(part) for part in item["loc"] if part not in {"body", "query"}]
    # For a union pydantic appends the name of the member it tried: the field comes before it.
    field = path[0] if path else "body"
    return RequestError(f"{'.'.join(path) or 'body'}: {item['msg']}", field)
