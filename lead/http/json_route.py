"""Routes that take JSON: check content type, size, nesting and encoding of a body, and validate it.

FastAPI would parse and validate on the event loop, and collect all errors. Here the objects and arrays of a
body are counted first. A large body is then parsed and validated in a thread, one body at a time, and clients
take turns. FastAPI gets the finished model. The total size of all bodies is limited. The body of a request to
an unknown path is not read.
"""

import asyncio
import codecs
import contextlib
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from lead.chat_format.fields import ConvertedRequest
from lead.http.client_gone import ClientGoneError
from lead.http.error_responses import first_invalid
from lead.http.fair_lock import FairLock
from lead.settings.limits import RequestLimits
from lead.tokenizer.fair_queue import Client, FairQueue
from shared.errors import QueueFullError, RequestError
from shared.protocol import MAX_BACK_MESSAGE_BYTES

R = TypeVar("R")
T = TypeVar("T", bound=BaseModel)

_JSON = re.compile(r"application/(?:[\w.-]+\+)?json", re.IGNORECASE)
_CONTENT_TYPE = (b"content-type", b"application/json")
_UNMARKED = {"", "application/x-www-form-urlencoded"}
"""The content types of clients that do not choose a type: curl then sends the type of forms."""
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""A JSON string, perhaps unclosed. Possessive quantifiers make matching linear."""
_MAX_INLINE_BYTES = 64 << 10
"""The size of the largest body that is parsed on the event loop, as changing threads would take longer."""
_MAX_BYTES = 64 << 20
"""The maximum of the total size of all bodies that arrive or wait. At the maximum, the client with the most
bytes loses its newest body (see `Client`).
"""
_BYTES_PER_CONTAINER = 64
_MIN_CONTAINERS = 1 << 16
_MAX_BODY_BYTES = {"/v1/speculation": MAX_BACK_MESSAGE_BYTES, "/v1/join": 4 << 10}
"""Limits that replace --max-body-bytes, by path. The limit for joining is low, as joining needs no key."""


class _ArrivingBody:
    """A body that is being received, for at most `seconds`, or that waits for its turn to be parsed."""

    def __init__(self, seconds: float) -> None:
        self.timeout = asyncio.timeout(seconds)
        self.is_refused = False

    def refuse(self) -> None:
        """Refuse the body, to make room for others."""
        self.is_refused = True
        if not self.timeout.expired():
            self.timeout.reschedule(0)

    def has_arrived(self) -> None:
        """Remove the time limit: the body has arrived."""
        if not self.is_refused:
            self.timeout.reschedule(None)


class BodyReader:
    """Reads bodies as JSON and validates them as models; one for all routes of an application."""

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        # Each level of a schema is two levels of JSON ({"properties": {"a": …}}) inside the body's own.
        self._max_nesting = 2 * limits.max_schema_depth + 16
        self._max_containers = max(_MIN_CONTAINERS, limits.max_body_bytes // _BYTES_PER_CONTAINER)
        self._arriving = FairQueue[_ArrivingBody](sys.maxsize, max(_MAX_BYTES, 2 * limits.max_body_bytes))
        self._fair_lock = FairLock()
        self._thread = ThreadPoolExecutor(1, "json")

    async def read(self, request: Request, model: type[T]) -> tuple[bytes, T | None]:
        """Return the whole body, and its value as a `model`; the value is None if there is no body.

        Raises HTTPException (408, 413, 415), RequestError with the first reason why the body is not a
        `model`, QueueFullError and ClientGoneError. Only JSON is accepted. After a refusal, the connection
        discards the rest of the body, for as long as a body may take to arrive.
        """
        if not has_body(request):
            return b"", None
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if not _JSON.fullmatch(kind) and not (kind.lower() in _UNMARKED and not _is_of_page(request)):
            shown = kind[:100]
            raise HTTPException(
                415, f"the body must be JSON with Content-Type: application/json, not {shown!r}"
            )
        coding = request.headers.get("content-encoding", "identity")
        if coding.lower() != "identity":
            raise HTTPException(
                415, f"compressed bodies are not supported: Content-Encoding is {coding[:100]!r}"
            )
        async with contextlib.AsyncExitStack() as turn:
            body = await self._receive(request, turn)
            if not body:
                return body, None
            if len(body) <= _MAX_INLINE_BYTES:
                return body, self._parse(body, model)
            return body, await self._in_thread(lambda: self._parse(body, model))

    async def run(self, client: Client, n_bytes: int, work: Callable[[], R]) -> R:
        """Run `work` on data from a body of `n_bytes`, in a thread if that is large; return its result."""
        if n_bytes <= _MAX_INLINE_BYTES:
            return work()
        async with self._fair_lock.hold(client):
            return await self._in_thread(work)

    async def _receive(self, request: Request, turn: contextlib.AsyncExitStack) -> bytes:
        """Return the whole body. For a large body, `turn` holds the lock for parsing until `turn` closes."""
        max_bytes = _MAX_BODY_BYTES.get(request.scope["path"], self._limits.max_body_bytes)
        client, seconds = client_of(request), self._limits.body_seconds
        arriving = _ArrivingBody(seconds)

        def count(n_bytes: int) -> None:
            for refused in self._arriving.grow(client, arriving, n_bytes):
                refused.refuse()

        self._arriving.push(client, arriving, 0)
        try:
            async with arriving.timeout:
                body = await _collect(request, max_bytes, count)
                arriving.has_arrived()
                if len(body) > _MAX_INLINE_BYTES:
                    await turn.enter_async_context(self._fair_lock.hold(client))
        except TimeoutError:
            if not arriving.is_refused:
                raise HTTPException(408, f"the body did not arrive within {seconds:g} seconds") from None
        finally:
            self._arriving.remove(client, arriving)
        if arriving.is_refused:
            raise QueueFullError(
                "the bodies of arriving requests are too large in total: try again in a moment"
            )
        return body

    async def _in_thread(self, work: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _parse(self, body: bytes, model: type[T]) -> T:
        value = parse_json(body, self._max_nesting, self._max_containers)
        try:
            return model.model_validate(value)
        except ValidationError as error:
            raise first_invalid(error, value) from None


class JsonRoute(APIRoute):
    """A route whose body is read by the application's BodyReader (`app.state.bodies`)."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        model = self.body_field.field_info.annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)

        own_names = model.own_names if issubclass(model, ConvertedRequest) else {}
        call = _direct_call(self)

        async def handle_json(request: Request) -> Response:
            bodies: BodyReader = request.app.state.bodies
            body, value = await bodies.read(request, model)
            try:
                if value is not None and call:
                    return await call(_ReadRequest(request, body, value), value)
                return await handle(_TypedRequest(request, body, value))
            except RequestError as error:
                _rename(error, own_names)
                raise

        return handle_json


def _direct_call(route: APIRoute) -> Callable[[Request, BaseModel], Awaitable[Response]] | None:
    """Return a function that calls the route's handler without FastAPI; None if the handler needs FastAPI.

    A handler does not need FastAPI if its parameters are the body, the request, and results of plain
    functions of the request. FastAPI's own call takes longer than reading a small body, and runs those
    functions in threads.
    """
    needs, endpoint = route.dependant, route.endpoint
    (body,) = needs.body_params
    names = [body.name, needs.request_param_name, *(each.name for each in needs.dependencies)]
    takes_more = set(inspect.signature(endpoint).parameters) - set(names)
    if takes_more or route.response_model is not None or not all(map(_is_plain, needs.dependencies)):
        return None
    finders = [(str(each.name), each.call, str(each.request_param_name)) for each in needs.dependencies]

    async def call(request: Request, value: BaseModel) -> Response:
        given: dict[str, object] = {body.name: value}
        if needs.request_param_name:
            given[needs.request_param_name] = request
        for name, find, takes in finders:
            assert find
            given[name] = find(**{takes: request})
        response: Response = await endpoint(**given)
        return response

    return call


def _is_plain(needed: Dependant) -> bool:
    """Return whether a synchronous function computes the dependency from the request alone."""
    find = needed.call
    return (
        inspect.isfunction(find)
        and not inspect.iscoroutinefunction(find)
        and not inspect.isgeneratorfunction(find)
        and list(inspect.signature(find).parameters) == [needed.request_param_name]
    )


class _ReadRequest(Request):
    """A request whose body has been read and validated: `json` returns the model."""

    def __init__(self, request: Request, body: bytes, value: BaseModel | None) -> None:
        super().__init__(request.scope, request.receive)
        self._content = body
        self._value = value

    async def body(self) -> bytes:
        return self._content

    async def json(self) -> Any:
        return self._value


class _TypedRequest(_ReadRequest):
    """A request for FastAPI, which keeps the model. FastAPI reads JSON only with JSON's content type."""

    def __init__(self, request: Request, body: bytes, value: BaseModel | None) -> None:
        super().__init__(request, body, value)
        others = [header for header in request.headers.raw if header[0] != _CONTENT_TYPE[0]]
        self._headers = Headers(raw=[*others, _CONTENT_TYPE])


def _rename(error: RequestError, own_names: Mapping[str, str]) -> None:
    """Replace the field's name in `error` by its name in the API that was used.

    The path inside the field is dropped.
    """
    if (name := own_names.get(error.param or "")) is None:
        return
    path, colon, reason = str(error).partition(": ")
    if colon and path.partition(".")[0] == error.param:
        error.args = (f"{name}: {reason}",)
    error.param = name


async def convert(request: Request, work: Callable[[], R]) -> R:
    """Run `work` on the body of `request`, in a thread if the body is large; return its result."""
    bodies: BodyReader = request.app.state.bodies
    return await bodies.run(client_of(request), len(await request.body()), work)


def client_of(request: Request) -> Client:
    """Return the client of a request: its key and its address. Clients take turns."""
    principal = getattr(request.state, "principal", None)
    return Client(str(principal), request.client.host if request.client else "")


def _is_of_page(request: Request) -> bool:
    """Return whether a web page may have sent this request, which has a body: browsers mark such requests.

    Without permission (CORS), pages of other origins can send forms and texts, but not JSON.
    """
    return "origin" in request.headers or "sec-fetch-site" in request.headers


def has_body(request: Request) -> bool:
    """Return whether a request has a body of at least one byte, according to its headers."""
    return "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"


def parse_json(body: bytes, max_nesting: int, max_containers: int) -> Any:
    """Parse `body`; raises RequestError unless it is JSON in UTF-8 within both bounds.

    max_nesting: the maximum depth of containers (arrays and objects). max_containers: the maximum number of
    containers; each takes much more memory than its two bytes of text.

    Python's own parser is not used. It also accepts UTF-16, UTF-32 and unpaired surrogates, which an answer
    could not repeat. It accepts any depth, which would exhaust the stack of code that walks the values.
    """
    if _exceeds(body, max_containers):
        raise RequestError(f"the body has more than {max_containers} objects and arrays")
    try:
        value = from_json(body.removeprefix(codecs.BOM_UTF8), cache_strings="keys")
    except ValueError as error:
        raise RequestError(f"the body is not valid JSON in UTF-8: {error}") from None
    containers, depth = _containers([value]), 0
    while containers:
        depth += 1
        if depth > max_nesting:
            raise RequestError(f"the body is nested deeper than {max_nesting} levels")
        containers = [
            child
            for each in containers
            for child in _containers(each.values() if isinstance(each, dict) else each)
        ]
    return value


def _exceeds(body: bytes, max_containers: int) -> bool:
    """Return whether `body` has more than `max_containers` opening brackets outside its strings."""
    if _n_brackets(body) <= max_containers:
        return False
    return _n_brackets(_STRING.sub(b"", body)) > max_containers


def _n_brackets(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{")


def _containers(values: Iterable[object]) -> list[dict[str, object] | list[object]]:
    return [value for value in values if isinstance(value, dict | list)]


async def _collect(request: Request, max_bytes: int, count: Callable[[int], None]) -> bytes:
    """Return the body. Raises ClientGoneError, and HTTPException as soon as it has more than `max_bytes`."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            count(len(chunk))
            if len(body) > max_bytes:
                raise _too_large(max_bytes)
    except ClientDisconnect:
        raise ClientGoneError from None
    return bytes(body)


def _too_large(max_bytes: int) -> HTTPException:
    return HTTPException(413, f"the body has more than {max_bytes} bytes")
