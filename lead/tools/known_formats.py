"""Formats of calls that chat templates do not show. Each is recognized by a text in the template."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lead.tools.call_format import NAME, CallFormat, TaggedArguments

_JSON_CALL = (f'{{"name": "{NAME}", "arguments": ', "}")

GENERIC = CallFormat(
    *_JSON_CALL,
    before='{"tool_calls": [',
    between=", ",
    after="]}",
    is_generic=True,
    is_described=True,
    ends=(",", "]", "}"),
)
"""The format for templates without tools: the tools are described in words, and the answer is constrained to
JSON.
"""

_HERMES = CallFormat(
    f"<tool_call>\n{_JSON_CALL[0]}",
    "}\n</tool_call>",
    between="\n",
    starts=("<tool_call>",),
)
_LFM2 = CallFormat(
    f"{NAME}(",
    ")",
    before="<|tool_call_start|>[",
    between=", ",
    after="]<|tool_call_end|>",
    arguments=TaggedArguments("", {"string": "="}, between=", ", quotes=("'", "'")),
    starts=("<|tool_call_start|>",),
)
_GRANITE = CallFormat(
    *_JSON_CALL, before="<|tool_call|>[", between=", ", after="]", starts=("<|tool_call|>",)
)

_WITHOUT_CALLS = (
    ("List of tools: ", _LFM2),  # LFM2 and 2.5
    ("<|tool_call|>", _GRANITE),  # Granite 3.3, Phi 4
    ("xml_tools", _HERMES),  # SmolLM3
)
"""Formats of templates that describe tools but write no calls: such templates expect calls in the content."""
_ALSO: tuple[tuple[str, Mapping[str, Any]], ...] = (
    # gpt-oss: a call may be in any channel, and its recipient may come before the channel.
    (
        "<|channel|>",
        {
            "head": f"<|channel|>commentary to=functions.{NAME} <|constrain|>json<|message|>",
            "tail": "",
            "starts": (
                *("<|channel|>commentary to=functions.", "<|channel|>analysis to=functions."),
                *(" to=functions.", "to=functions."),
            ),
            "ends": ("<|call|>",),
        },
    ),
    # Llama 3: the model calls the tools of its training in code.
    ("<|python_tag|>", {"code_tag": "<|python_tag|>"}),
)
"""By a text in the template: fields of the format that the template does not show."""


def format_without_calls(template: str) -> CallFormat:
    """Return the format for a template whose renderings show no calls."""
    return next((calls for sign, calls in _WITHOUT_CALLS if sign in template), GENERIC)


def completed(calls: CallFormat, template: str) -> CallFormat:
    """Return the format with the parts that the template does not show, but its models write."""
    return replace(calls, **next((also for sign, also in _ALSO if sign in template), {}))
