"""Makes requests that might bring a lead down from the API's description (OpenAPI).

Every field and list of every route gets values of wrong types, runs of one character, deep nesting, schemas
that refer to themselves, and numbers of thousands of digits. Bodies arrive whole, slowly or not as JSON. A
request depends only on its number. A new route is attacked as soon as it is described.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httpx

from lab.campaign.hostile_json import Json, Mutator, fitting, large, small, written

_MAX_DEPTH = 6
"""The depth to which members of members are found. The API's deepest named field is four levels down."""
_EXAMPLES: Mapping[str, Json] = {
    "role": "user",
    "content": "Hi",
    "messages": [{"role": "user", "content": "Hi"}],
    "input": "Hi",
    "prompt": "Once",
    "tokens": [1],
}
"""Values that the API accepts, by the field's name; the description alone does not lead to them."""
_SHORT = {"max_tokens", "max_output_tokens"}
"""Fields that limit the length of an answer."""
_FITTING = 0.5
"""The share of values of the right type, which pass validation and reach the code after it."""
_TYPES = ("application/json",) * 20 + ("", "text/plain", "multipart/form-data", "application/jsonp")
_METHODS = ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "POST")
_SIZES = (2_000, 20_000, 60_000)
_KINDS = {"string": "text", "integer": "number", "number": "number", "boolean": "number", "array": "list"}

_ANSWER_SECONDS = 180.0
_N_PIECES, _PAUSE_SECONDS = 4, 0.05
_ALLOWED = {HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.SERVICE_UNAVAILABLE}
"""Documented answers of 500 and more: unsupported features, and a full queue."""
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Place:
    """A field, or an element of a list, in a body.

    name: a path, as `messages[].content[].text`. kinds: the types that the description allows. put: returns a
    body with this field set to a given value, and otherwise only required fields.
    """

    name: str
    kinds: frozenset[str]
    put: Callable[[Json], Json]


@dataclass(frozen=True, slots=True)
class Operation:
    """A method at a path. good: a body that it accepts; None if it takes none."""

    method: str
    path: str
    good: Json | None
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class HostileRequest:
    """A hostile request. is_slow: its body arrives in chunks, with pauses.

    leaves: the client disconnects without reading the answer.
    """

    method: str
    path: str
    body: bytes = b""
    content_type: str = _TYPES[0]
    is_slow: bool = False
    leaves: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.body[:_SHOWN]!r}, {len(self.body)} bytes"


def operations(description: Mapping[str, Any]) -> list[Operation]:
    """Return all operations of an OpenAPI document."""
    reader = _Reader(description.get("components", {}).get("schemas", {}))
    return [
        reader.operation(method.upper(), path, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]


def hostile_request(operation: Operation, rng: random.Random) -> HostileRequest:
    """Return a random request for an operation; the same for the same state of `rng`."""
    method = rng.choice(_METHODS) if rng.random() < 0.02 else operation.method  # noqa: PLR2004 - few
    if not operation.places:
        return HostileRequest(method, operation.path, rng.choice((b"", b"{}", b"{")))
    body = _body(operation, rng)
    if isinstance(body, dict) and body and rng.random() < 0.15:  # noqa: PLR2004 - some
        broken = Mutator(rng).broken(body)
        content = broken.encode("utf-8", "surrogatepass") if isinstance(broken, str) else broken
    else:
        content = written(body).encode()
    way = rng.random()
    return HostileRequest(
        method,
        operation.path,
        content,
        rng.choice(_TYPES),
        is_slow=way < 0.04,  # noqa: PLR2004 - few
        leaves=way > 0.96,  # noqa: PLR2004 - few
    )


def _body(operation: Operation, rng: random.Random) -> Json:
    """Return a good body with hostile values in one to three fields, sometimes a large value."""
    body: Json = dict.fromkeys(_SHORT & {place.name for place in operation.places}, 2)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        place, kind = rng.choice(operation.places), rng.random()
        if kind < 0.06:  # noqa: PLR2004 - few
            value: Json = large(rng, rng.choice(_SIZES))
        else:
            value = fitting(rng, place.kinds) if kind < _FITTING else small(rng)
        if not place.name and not isinstance(value, dict):
            return value
        body = {**(operation.good or {}), **body, **place.put(value)}
    return body


class _Reader:
    """Reads JSON schemas of one document."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions

    def operation(self, method: str, path: str, operation: Mapping[str, Any]) -> Operation:
        content = operation.get("requestBody", {}).get("content", {})
        if "application/json" not in content:
            return Operation(method, path, None, ())
        schema = content["application/json"]["schema"]
        good = self._example(schema)
        whole = Place("", frozenset({"any"}), lambda value: value)
        places = (whole, *self._places(schema, "", lambda value: {**good, **value}, 0))
        return Operation(method, path, good, places)

    def _places(
        self, schema: Mapping[str, Any], name: str, put: Callable[[Json], Json], depth: int
    ) -> Iterator[Place]:
        """Yield the places inside a value of `schema`. put: returns a body with a given value of `schema`."""
        if depth > _MAX_DEPTH:
            return
        for member in self._members(schema):
            for field, inner in member.get("properties", {}).items():
                inside = _member(put, self._example(member), field)
                yield from self._place(inner, f"{name}.{field}" if name else field, inside, depth)
            if isinstance(inner := member.get("items"), Mapping):
                yield from self._place(inner, f"{name}[]", lambda value: put([value]), depth)
            if isinstance(inner := member.get("additionalProperties"), Mapping):
                yield from self._place(inner, f"{name}{{}}", lambda value: put({"1": value}), depth)

    def _place(
        self, schema: Mapping[str, Any], name: str, put: Callable[[Json], Json], depth: int
    ) -> Iterator[Place]:
        types = (member.get("type", "any") for member in self._members(schema))
        yield Place(name, frozenset(_KINDS.get(each, each) for each in types), put)
        yield from self._places(schema, name, put, depth + 1)

    def _members(self, schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the schemas of a union, or the schema itself, without references."""
        while "$ref" in schema:
            schema = self._definitions[schema["$ref"].rpartition("/")[2]]
        for word in ("anyOf", "oneOf", "allOf"):
            if word in schema:
                return [member for each in schema[word] for member in self._members(each)]
        return [schema]

    def _example(self, schema: Mapping[str, Any], name: str = "") -> Json:
        """Return a value of `schema` with only its required parts."""
        if name in _EXAMPLES:
            return _EXAMPLES[name]
        member = self._members(schema)[0]
        if "const" in member or "enum" in member:
            return member.get("const", member.get("enum", [None])[0])
        match member.get("type"):
            case "object":
                fields = member.get("properties", {})
                return {key: self._example(fields[key], key) for key in member.get("required", ())}
            case "array":
                return [self._example(member["items"])] if member.get("minItems") else []
            case "string":
                return "x" * max(1, member.get("minLength", 1))
        return member.get("minimum", 1)


def _member(put: Callable[[Json], Json], others: Json, field: str) -> Callable[[Json], Json]:
    return lambda value: put({**others, field: value})


# Sending


async def attack(http: httpx.AsyncClient, request: HostileRequest) -> str | None:
    """Send the request; return the lead's fault (no answer in time, or an internal error), None if there is
    none.

    Also None if there was no connection, because other faults may happen at the same time.
    """
    headers = {"Content-Type": request.content_type} if request.content_type else {}
    content = _pieces(request.body) if request.is_slow else request.body
    try:
        async with (
            asyncio.timeout(_ANSWER_SECONDS),
            http.stream(request.method, request.path, content=content, headers=headers) as response,
        ):
            text = "" if request.leaves else (await response.aread()).decode("utf-8", "replace")
    except TimeoutError:
        return f"no answer within {_ANSWER_SECONDS:.0f} s: {request}"
    except httpx.TransportError:
        return None
    is_refused = response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR or response.status_code in _ALLOWED
    if is_refused and '"server_error"' not in text:  # in a stream it stands behind a good status
        return None
    return f"status {response.status_code}: {request}\n  {text[-2 * _SHOWN :]}"


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    size = max(1, -(-len(body) // _N_PIECES))
    for at in range(0, len(body), size):
        yield body[at : at + size]
        await asyncio.sleep(_PAUSE_SECONDS)
