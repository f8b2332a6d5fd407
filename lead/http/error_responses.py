"""Errors in the form that clients expect: an HTTP status, and a body in the format of the API.

OpenAI's body is `{"error": {message, type, param, code}}`. At the paths of Anthropic's API the body is
`{"type": "error", "error": {type, message}}`, and at the paths of Ollama's API `{"error": message}`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from shared.errors import (
    ContextExceededError,
    DuoError,
    NotServingError,
    ProtocolError,
    RequestError,
    UnavailableError,
    UnsupportedError,
    UnusableModelError,
)

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_MAX_MESSAGE_CHARACTERS = 2000
_RETRY_AFTER_SECONDS = 5
_INSTANCE = re.compile(r" or instance of \w+")
_NEVER = {"x-should-retry": "false"}
"""The header that keeps clients of OpenAI and Anthropic from retrying; they retry every 5xx otherwise."""
_HTTP_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
_ANTHROPICS_PATH = "/v1/messages"
_OLLAMAS_PATHS = "/api/"
_ANTHROPICS_TYPES = _HTTP_TYPES | {413: "request_too_large", 503: "overloaded_error"}


class ErrorResponse(JSONResponse):
    """An error response of a route or middleware; the format of its body depends on the path."""

    def __init__(self, body: dict[str, Any], status: int, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(body, status, headers)
        self._error: Mapping[str, Any] = body["error"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (body := _other_shape(scope["path"], self.status_code, self._error)) is not None:
            self.body = self.render(body)
            self.headers["content-length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


def install(app: FastAPI) -> None:
    """Make every error of `app` an `ErrorResponse`."""

    async def on_duo_error(_: Request, error: Exception) -> JSONResponse:
        return error_response(error)

    async def on_invalid(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        item = error.errors()[0]
        path = [str(part) for part in item["loc"] if part not in {"body", "query"}]
        return error_response(_invalid(path, item["msg"]))

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


def error_response(error: Exception, **fields: str) -> ErrorResponse:
    """Return the response to a request that failed with `error`; `fields` are added to the body."""
    headers = None
    if isinstance(error, UnavailableError):
        headers = {"Retry-After": str(_RETRY_AFTER_SECONDS)}
        if isinstance(error, NotServingError):
            headers[NotServingError.HEADER] = "true"
    elif isinstance(error, UnsupportedError | UnusableModelError):
        headers = _NEVER
    return ErrorResponse(fields | error_body(error), _status_and_type(error)[0], headers)


def http_error(
    status: int, message: str, kind: str, *, code: str | None = None, headers: Mapping[str, str] | None = None
) -> ErrorResponse:
    """Return a response for an HTTP error, in the format of `error_response`."""
    return ErrorResponse(_body(message, kind, code=code), status, headers)


def error_body(error: Exception) -> dict[str, Any]:
    """Return the body of an error for a response, or for the last event of a stream."""
    status, kind = _status_and_type(error)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, UnusableModelError):
        return _body("the server failed. Read its log", kind)
    body = _body(str(error), kind, getattr(error, "param", None), getattr(error, "code", None))
    if isinstance(error, ContextExceededError):
        body["error"] |= {"n_prompt_tokens": error.n_prompt, "n_ctx": error.n_ctx}
    return body


def body_at(path: str, error: Exception) -> dict[str, Any]:
    """Return the body of an error in the format of the API at `path`."""
    body = error_body(error)
    return _other_shape(path, _status_and_type(error)[0], body["error"]) or body


def _other_shape(path: str, status: int, error: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an error in the format of Anthropic's or Ollama's API if `path` belongs to it; else None."""
    if f"{path}/".startswith(f"{_ANTHROPICS_PATH}/"):
        return _anthropics_body(status, error)
    return {"error": error["message"]} if path.startswith(_OLLAMAS_PATHS) else None


def _allowed(request: Request) -> Iterator[str]:
    """Yield the methods of all routes at a path; Starlette names only the methods of the first route."""
    for method in _METHODS:
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes):
            yield from ("GET", "HEAD") if method == "GET" else (method,)


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


def _anthropics_body(status: int, error: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error in Anthropic's format. Clients recognize a too long prompt by Anthropic's wording."""
    message = error["message"]
    if error["code"] == ContextExceededError.CODE:
        message = f"prompt is too long: {error['n_prompt_tokens']} tokens > {error['n_ctx'] - 1} maximum"
    is_servers = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    kind = _ANTHROPICS_TYPES.get(status, "api_error" if is_servers else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def _cut(text: str) -> str:
    """Return `text` without its middle if it is long: messages quote texts of clients, of any length."""
    if len(text) <= _MAX_MESSAGE_CHARACTERS:
        return text
    half = _MAX_MESSAGE_CHARACTERS // 2
    return f"{text[:half]} … {text[-half:]}"


def first_invalid(error: ValidationError, value: object) -> RequestError:
    """Return a RequestError about the first invalid field of `value`.

    For a union, pydantic reports an error of each member. The client probably meant the member whose error is
    deepest inside the field.
    """
    items = error.errors(include_url=False, include_context=False, include_input=False)
    reasons: dict[tuple[str, ...], list[str]] = {}
    for item in items:
        if item["loc"][:1] == items[0]["loc"][:1]:
            path = _path(item["loc"], value, is_missing=item["type"] == "missing")
            reasons.setdefault(path, []).append(item["msg"])
    path = max(reasons, key=len)
    return _invalid(path, _either(reasons[path]))


def _path(location: tuple[int | str, ...], value: Any, *, is_missing: bool) -> tuple[str, ...]:
    """Return the path of a field, without the members of unions that pydantic inserts."""
    path: list[str] = []
    for part in location:
        is_index = isinstance(value, list) and isinstance(part, int)
        if is_index or (isinstance(value, dict) and part in value):
            value = value[part]
            path.append(str(part))
    return (*path, str(location[-1])) if is_missing else tuple(path)


def _either(reasons: list[str]) -> str:
    """Return the distinct reasons as one: "Input should be a valid string or a valid list"."""
    first, *others = dict.fromkeys(_INSTANCE.sub("", reason) for reason in reasons)
    return " or ".join([first, *(other.removeprefix("Input should be ") for other in others)])


def _invalid(path: Sequence[str], reason: str) -> RequestError:
    return RequestError(f"{'.'.join(path) or 'body'}: {reason}", path[0] if path else "body")
