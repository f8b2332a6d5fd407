"""Tools in the words of a system message, for templates that know nothing of tools."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

_INTRODUCTION = (
    "You can call tools. They are, with JSON schemas of their parameters:\n\n%s\n\n"
    'Answer with JSON only: {"tool_calls": [{"name": NAME, "arguments": {...}}]} to call tools, '
    "%s"
)
_EITHER = 'or {"response": ...} with what you have to say.'
_MUST = "and call at least one."


def describe(tools: Sequence[Mapping[str, Any]], *, must_call: bool) -> str:
    """The message."""
    listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    return _INTRODUCTION % (listed, _MUST if must_call else _EITHER)
