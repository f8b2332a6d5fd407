"""Sentences about wrong values of options, in place of pydantic's."""

import difflib
import re
from collections.abc import Mapping
from typing import Final

from pydantic_core import ErrorDetails

_CHOICE = re.compile(r"'([^']*)'")
_SENTENCES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("int_parsing", "int_type", "int_from_float", "int_parsing_size"), "a whole number is needed"
    ),
    **dict.fromkeys(("float_parsing", "float_type"), "a number is needed"),
    "finite_number": "a finite number is needed",
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false is needed"),
    **dict.fromkeys(("string_type", "path_type"), "a text is needed"),
    **dict.fromkeys(("list_type", "tuple_type"), "a list is needed"),
    "dict_type": 'an object is needed, as in {"name": "value"}',
    "json_invalid": 'JSON is needed, as in {"name": "value"}',
}
"""By pydantic's names of errors."""
_BOUNDS: Final[Mapping[str, tuple[str, str]]] = {
    "greater_than_equal": ("ge", "at least {} is needed"),
    "greater_than": ("gt", "more than {} is needed"),
    "less_than_equal": ("le", "at most {} is possible"),
    "less_than": ("lt", "less than {} is needed"),
    "too_long": ("max_length", "at most {} values are possible"),
    "too_short": ("min_length", "at least {} value is needed"),
    "string_too_long": ("max_length", "at most {} characters are possible"),
    "string_too_short": ("min_length", "at least {} character is needed"),
}
"""By pydantic's names: where the bound is, and what is said of it."""


def sentence(item: ErrorDetails) -> str:
    """What is needed in place of the value, which is not quoted: it may be a secret."""
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
    return f"one of {', '.join(choices)} is needed{hint}"
