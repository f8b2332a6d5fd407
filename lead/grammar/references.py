"""Resolves references inside a JSON schema, and merges schemas that describe the same value."""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

Schema = dict[str, Any]

ALTERNATIVES = ("anyOf", "oneOf")
BY_NAME = ("properties", "patternProperties")
"""Keywords whose value is an object of schemas."""
IN_LISTS = ("allOf", *ALTERNATIVES, "prefixItems", "items")
"""Keywords whose value is, or may be, a list of schemas."""
SINGLE = (
    "items",
    "additionalItems",
    "unevaluatedItems",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
)
"""Keywords whose value is, or may be, a schema."""

UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
READ = {
    *("$ref", "const", "enum", "type", "required", "pattern", "format", "multipleOf"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    *(*BY_NAME, *IN_LISTS, *SINGLE),
}
"""Keywords that constrain values; other keywords are left out."""

_MAX_LEVELS = 300
"""The maximum nesting of all definitions together: llguidance recurses, with 10 KB of stack per level."""
_MAX_PARTS = 1000
_MAX_ALL_PARTS = 30_000
"""The maximum number of parts of all values in a schema, counted at each visit, which take about 0.1 s."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_BESIDE_REFERENCE = {
    "allOf",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    *ALTERNATIVES,
}


class SchemaError(ValueError):
    """An error in a schema; the message says where."""


class Addresses:
    """Resolves `$ref`s within one schema."""

    def __init__(self, root: object) -> None:
        self._root = root

    @functools.cached_property
    def _known(self) -> tuple[str, Mapping[str, str], str]:
        return _addresses(self._root)

    def resolve(self, reference: object) -> tuple[str, object]:
        """Return the JSON pointer in canonical form, and the value there; raises SchemaError."""
        address, fragment = urldefrag(reference) if isinstance(reference, str) else ("?", "")
        own, anchors, _ = self._known
        fragment = anchors.get(fragment, fragment)
        is_own = not address or urljoin(own, address) == own
        if not is_own or fragment[:1] not in {"", "/"}:
            raise SchemaError(f"$ref {reference!r}: only references within this schema are supported")
        pointer, target = "#", self._root
        for part in fragment.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            pointer = below(pointer, key)
            if isinstance(target, dict) and key in target:
                target = target[key]
            elif isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            else:
                raise SchemaError(f"cannot resolve $ref {reference}")
        return pointer, target


class References(Addresses):
    """The `$ref`s of a schema to definitions within it.

    merged: JSON pointers of definitions that apply to a value together with another schema. targets: the
    referenced values, by JSON pointer.
    """

    def __init__(self, root: object) -> None:
        """Resolve the references; raises SchemaError if some do not resolve or are nested too deeply."""
        super().__init__(root)
        self._n_parts = 0
        self._names: dict[str, str] = {}
        self.targets: dict[str, object] = {}
        self.merged: set[str] = set()
        self._find()
        *_, inner = self._known
        if self.targets and inner:
            raise SchemaError(f"{inner}/$id: $ref beside schemas with an $id is not supported")
        n_levels = sum(1 + depth(target, _MAX_LEVELS) // 2 for target in self.targets.values())
        if n_levels > _MAX_LEVELS:
            raise SchemaError(
                f"its definitions have {n_levels} levels in total; the maximum is {_MAX_LEVELS}"
            )

    def name(self, pointer: str) -> str:
        """Return a unique name for the definition at `pointer`, without characters that need escapes."""
        if pointer not in self._names:
            last = pointer.rpartition("/")[2]
            is_free = _PLAIN_NAME.fullmatch(last) and last not in self._names.values()
            self._names[pointer] = last if is_free else f"{len(self._names)}:"
        return self._names[pointer]

    def parts(self, schema: Schema, *, with_alternatives: bool = False) -> Iterator[Schema]:
        """Yield `schema` and all schemas that apply to the same value, through `allOf` and references."""
        todo: list[object] = [schema]
        followed: set[str] = set()
        for _ in range(_MAX_PARTS):
            if not todo:
                return
            part = todo.pop()
            if not isinstance(part, dict):
                continue
            self._count_part()
            yield part
            for keyword in ("allOf", *(ALTERNATIVES if with_alternatives else ())):
                todo += part[keyword] if isinstance(part.get(keyword), list) else []
            if "$ref" in part:
                pointer, target = self.resolve(part["$ref"])
                todo += [target] if pointer not in followed else []
                followed.add(pointer)
        raise SchemaError(f"more than {_MAX_PARTS} schemas apply to one value")

    def _count_part(self) -> None:
        self._n_parts += 1
        if self._n_parts > _MAX_ALL_PARTS:
            raise SchemaError("too many references to schemas with many parts")

    def _find(self) -> None:
        todo: list[tuple[object, bool]] = [(self._root, False)]
        seen: set[tuple[str, bool]] = set()
        while todo:
            schema, is_part = todo.pop()
            if not isinstance(schema, dict):
                continue
            is_part |= bool(schema.keys() & _BESIDE_REFERENCE) and "$ref" in schema
            if "$ref" in schema:
                pointer, target = self.resolve(schema["$ref"])
                self.targets[pointer] = target
                if is_part:
                    self.merged.add(pointer)
                if (pointer, is_part) not in seen:
                    seen.add((pointer, is_part))
                    todo.append((target, is_part))
            todo += [
                (inner, self._is_part(schema, keyword, is_part=is_part))
                for keyword, inner in inner_schemas(schema)
            ]

    @staticmethod
    def _is_part(schema: Schema, keyword: str, *, is_part: bool) -> bool:
        """Return whether the schemas under `keyword` apply to a value together with other schemas."""
        if is_wrapper(schema):
            return is_part
        if keyword in ALTERNATIVES:
            return is_part or bool(schema.keys() & {"properties", "required", "allOf", "$ref"})
        return keyword == "allOf"


def is_wrapper(schema: Schema) -> bool:
    """Return whether a schema means the same as the only schema in its `allOf`."""
    parts = schema.get("allOf")
    return schema.keys() & READ == {"allOf"} and isinstance(parts, list) and len(parts) == 1


def inner_schemas(schema: Schema) -> Iterator[tuple[str, object]]:
    """Yield the schemas directly inside `schema`, each with its keyword; without definitions."""
    for keyword, value in schema.items():
        if keyword in BY_NAME and isinstance(value, dict):
            yield from ((keyword, each) for each in value.values())
        elif keyword in IN_LISTS and isinstance(value, list):
            yield from ((keyword, each) for each in value)
        elif keyword in SINGLE:
            yield keyword, value


def _addresses(root: object) -> tuple[str, Mapping[str, str], str]:
    """Return the schema's address, the JSON pointers of its anchors, and the pointer of an inner schema with
    another address.
    """
    address, anchors, other = "", {}, ""
    todo: list[tuple[str, object]] = [("", root)]
    while todo:
        pointer, value = todo.pop()
        if not isinstance(value, dict | list):
            continue
        items = value.items() if isinstance(value, dict) else enumerate(value)
        todo += [(below(pointer, key), each) for key, each in items]
        if isinstance(value, list):
            continue
        own, anchor = value.get("$id"), value.get("$anchor")
        if isinstance(anchor, str):
            anchors[anchor] = pointer
        if isinstance(own, str) and own.startswith("#"):  # an anchor in the draft of 2017
            anchors[own[1:]] = pointer
        elif isinstance(own, str) and value is root:
            address = urldefrag(own).url
        elif isinstance(own, str):
            other = f"#{pointer}"
    return address, anchors, other


def depth(value: object, limit: int) -> int:
    """Return the number of nested levels of a JSON value, counted up to `limit` + 1."""
    level, n = [value], 0
    while level and n <= limit:
        n += 1
        inner: list[object] = []
        for each in level:
            inner += each.values() if isinstance(each, dict) else each if isinstance(each, list) else []
        level = inner
    return n


def below(pointer: str, key: str | int) -> str:
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"
