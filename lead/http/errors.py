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
from shared.errors import DuoError, ProtocolError, RequestError, UnavailableError, UnsupportedError

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_NEVER = {"x-should-retry": "false"}
"""For the clients of OpenAI and Anthropic, which take every 5xx for a mishap of the moment."""
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


def error_response(error: Exception) -> JSONResponse:
    """The response that tells a client of `error`."""
    return JSONResponse(error_body(error), _status(error), _advice(error))


def _advice(error: Exception) -> Mapping[str, str] | None:
    """Headers that say whether to try again."""
    match error:
        case UnavailableError():
            return {"Retry-After": str(RETRY_AFTER_SECONDS)}
        case UnsupportedError():
            return _NEVER
        case _:
            return None


def http_error(
    status: int, message: str, kind: str, *, code: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """An error that is HTTP's rather than ours, in the same shape."""
    return JSONResponse(_body(message, kind, code=code), status, headers)


def error_body(error: Exception) -> dict[str, Any]:
    """The body alone: what a stream that has begun sends as its last event."""
    match error:
        case ContextExceededError():
            body = _body(str(error), "exceed_context_size_error", error.param, error.code)
            body["error"] |= {"n_prompt_tokens": error.n_prompt, "n_ctx": error.n_ctx}
            return body
        case RequestError():
            return _body(str(error), "invalid_request_error", error.param, error.code)
        case ProtocolError():
            return _body(str(error), "invalid_request_error")
        case UnavailableError():
            return _body(str(error), "unavailable_error")
        case UnsupportedError():
            return _body(str(error), "not_supported_error")
        case _:
            return _body("the server failed; its log says more", "server_error")


def _allowed(request: Request) -> Iterator[str]:
    """The methods of all routes at a path: Starlette names those of the first one."""
    for method in _METHODS:
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes):
            yield method


def _status(error: Exception) -> int:
    match error:
        case RequestError() | ProtocolError():
            return 400
        case UnavailableError():
            return 503
        case UnsupportedError():
            return 501
        case _:
            return 500


def _body(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def first_invalid(error: RequestValidationError | ValidationError) -> RequestError:
    """What pydantic says first, as an error of ours."""
    item = error.errors()[0]
    path = [str(part) for part in item["loc"] if part not in {"body", "query"}]
    if item["type"] == "json_invalid":
        return RequestError(f"the body is not JSON: {item['ctx']['error']}")
    # For a union pydantic adds the name of the member it tried: the field is what stands before it.
    field = path[0] if path else "body"
    return RequestError(f"{'.'.join(path) or 'body'}: {item['msg']}", field)
