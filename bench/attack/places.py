"""Where a hostile value can stand in a request's body, read from the API's description (OpenAPI)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["text", "number", "list", "object", "any"]
Json = Any
"""Whatever json.dumps takes."""

_MAX_DEPTH = 6
"""Members of members: the deepest field of the API that has a name is four levels down."""
_EXAMPLES: Mapping[str, Json] = {
    "role": "user",
    "content": "Hi",
    "messages": [{"role": "user", "content": "Hi"}],
    "input": "Hi",
    "prompt": "Once",
    "tokens": [1],
}
"""Values that the API accepts, by the field's name; the description alone does not lead to them."""


@dataclass(frozen=True, slots=True)
class Place:
    """A field, or an element of a list.

    name: as a path, `messages[].content[].text`. kinds: the types that the description allows there.
    put: the value at the top that has a given value here, and else only what is required.
    """

    name: str
    kinds: frozenset[Kind]
    put: Callable[[Json], Json]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method at one path; `good` is a body that it accepts, None if it takes none."""

    method: str
    path: str
    good: Json | None
    places: tuple[Place, ...]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def operations(description: Mapping[str, Any]) -> list[Operation]:
    """All operations of an OpenAPI document."""
    reader = _Reader(description.get("components", {}).get("schemas", {}))
    return [
        reader.operation(method.upper(), path, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]


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
        """The places inside a value of `schema`, which `put` puts at its own place."""
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
        yield Place(name, frozenset(map(_kind, self._members(schema))), put)
        yield from self._places(schema, name, put, depth + 1)

    def _members(self, schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The schemas of a union, or the schema itself, without references."""
        while "$ref" in schema:
            schema = self._definitions[schema["$ref"].rpartition("/")[2]]
        for word in ("anyOf", "oneOf", "allOf"):
            if word in schema:
                return [member for each in schema[word] for member in self._members(each)]
        return [schema]

    def _example(self, schema: Mapping[str, Any], name: str = "") -> Json:
        """A value of `schema`, with only what is required."""
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


def _kind(schema: Mapping[str, Any]) -> Kind:
    match schema.get("type"):
        case "string":
            return "text"
        case "integer" | "number" | "boolean":
            return "number"
        case "array":
            return "list"
        case "object":
            return "object"
    return "any"
