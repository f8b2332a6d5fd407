"""References inside a JSON schema, and values that several schemas describe."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

Schema = dict[str, Any]

ALTERNATIVES = ("anyOf", "oneOf")

_MAX_LEVELS = 300
"""Nesting of all definitions together: llguidance recurses into them; a level takes some 10 KB of stack."""
_MAX_PARTS = 1000
_MAX_ALL_PARTS = 30_000
"""The limit for all values of a schema together, counting each look at one: about 0.1 s."""
_BESIDE_REFERENCE = {
    "allOf",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    *ALTERNATIVES,
}


class SchemaError(ValueError):
    """What is wrong with a schema, and where."""


class References:
    """Follows the `$ref`s of a schema; only those into itself.

    merged: JSON pointers of definitions that describe a value together with another schema.
    """

    def __init__(self, root: object) -> None:
        """Raises SchemaError for references that do not resolve or are nested too deeply."""
        self._root = root
        self._n_parts = 0
        self._targets: dict[str, object] = {}
        self.merged: set[str] = set()
        self._find()
        n_levels = sum(1 + depth(target, _MAX_LEVELS) // 2 for target in self._targets.values())
        if n_levels > _MAX_LEVELS:
            raise SchemaError(
                f"its definitions have {n_levels} levels in all; at most {_MAX_LEVELS} are accepted"
            )

    def resolve(self, reference: object) -> tuple[str, object]:
        """The JSON pointer in its usual spelling, and what is there."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise SchemaError(f"$ref {reference!r}: only references into this schema are followed")
        pointer, target = "#", self._root
        for part in reference[1:].split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            pointer = below(pointer, key)
            if isinstance(target, dict) and key in target:
                target = target[key]
            elif isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            else:
                raise SchemaError(f"cannot resolve $ref {reference}")
        return pointer, target

    def parts(self, schema: Schema, *, with_alternatives: bool = False) -> Iterator[Schema]:
        """`schema` and what else holds for the same value: its `allOf`, what they refer to, and so on."""
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
        raise SchemaError(f"more than {_MAX_PARTS} schemas describe one value")

    def _count_part(self) -> None:
        self._n_parts += 1
        if self._n_parts > _MAX_ALL_PARTS:
            raise SchemaError("too many references to schemas that consist of many others")

    def _find(self) -> None:
        todo: list[tuple[object, bool]] = [(self._root, False)]
        seen: set[tuple[str, bool]] = set()
        while todo:
            schema, is_part = todo.pop()
            if isinstance(schema, list):
                todo += [(each, is_part) for each in schema]
            if not isinstance(schema, dict):
                continue
            is_part |= bool(schema.keys() & _BESIDE_REFERENCE) and "$ref" in schema
            if "$ref" in schema:
                pointer, target = self.resolve(schema["$ref"])
                self._targets[pointer] = target
                if is_part:
                    self.merged.add(pointer)
                if (pointer, is_part) not in seen:
                    seen.add((pointer, is_part))
                    todo.append((target, is_part))
            todo += [
                (inner, self._is_part(schema, keyword, is_part=is_part)) for keyword, inner in schema.items()
            ]

    @staticmethod
    def _is_part(schema: Schema, keyword: str, *, is_part: bool) -> bool:
        """Whether the schemas under `keyword` apply to a value together with other schemas."""
        if keyword in ALTERNATIVES:
            return is_part or bool(schema.keys() & {"properties", "required", "allOf", "$ref"})
        return keyword == "allOf"


def depth(value: object, limit: int) -> int:
    """Levels of JSON, counted up to one more than `limit`."""
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
