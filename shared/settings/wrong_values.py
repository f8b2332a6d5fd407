"""Sentences about wrong values of options, in place of pydantic's."""

import difflib
import re
from collections.abc import Mapping
from typing import Final

from pydantic_core import ErrorDetails

_CHOICE = re.compile(r"'([^']*)'")
_SENTENCES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("int_parsing", "int_type", "int_from_float", "int_parsing_size"), "must be a whole number"
    ),
    **dict.fromkeys(("float_parsing", "float_type"), "must be a number"),
    "finite_number": "must be a finite number",
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    **dict.fromkeys(("string_type", "path_type"), "must be a string"),
    **dict.fromkeys(("list_type", "tuple_type"), "must be a list"),
    "dict_type": 'must be an object such as {"name": "value"}',
    "json_invalid": 'must be JSON such as {"name": "value"}',
}
"""Sentences, by the names that pydantic gives to errors."""
_BOUNDS: Final[Mapping[str, tuple[str, str]]] = {
    "greater_than_equal": ("ge", "must be at least {}"),
    "greater_than": ("gt", "must be more than {}"),
    "less_than_equal": ("le", "must be at most {}"),
    "less_than": ("lt", "must be less than {}"),
    "too_long": ("max_length", "can have at most {} values"),
    "too_short": ("min_length", "must have at least {} value"),
    "string_too_long": ("max_length", "can have at most {} characters"),
    "string_too_short": ("min_length", "must have at least {} character"),
}
"""The name of the bound and the sentence, by the names that pydantic gives to errors."""


def sentence(item: ErrorDetails) -> str:
    """Return what an option needs instead of its value. The value is not quoted, because it may be
    a secret.
    """
    kind, context = item["type"], item.get("ctx", {})
    if kind in _BOUNDS:
        name, said = _BOUNDS[kind]
        return said.format(f"{context[name]:g}" if isinstance(context[name], float) else context[name])
    if kind == "literal_error":
        return _one_of(item["input"], _CHOICE.findall(context["expected"]))
    return _SENTENCES.get(kind) or item["msg"].removeprefix("Value error, ")


def _one_of(value: object, choices: list[str]) -> str:
    similar = difflib.get_close_matches(str(value), choices, 1)
    hint = f": did you mean {similar[0]}?" if similar else ""
    return f"must be one of {', '.join(choices)}{hint}"
