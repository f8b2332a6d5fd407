"""Formats of calls that chat templates do not show, recognized by a text in the template, with reasons."""

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
"""The format for templates without tools, which are then described in words; the answer is constrained to
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
    ("List of tools: ", _LFM2),  # LFM2 and 2.5: the client has to write the calls into the content
    ("<|tool_call|>", _GRANITE),  # Granite 3.3, Phi 4: the same
    ("xml_tools", _HERMES),  # SmolLM3: the same
)
"""Formats of templates that describe tools, and leave calls out."""
_ALSO: tuple[tuple[str, Mapping[str, Any]], ...] = (
    # gpt-oss: a call may be in any channel, and its recipient before that.
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
    # Llama 3: tools that it was trained with are called in code.
    ("<|python_tag|>", {"code_tag": "<|python_tag|>"}),
)
"""Fields of a format that templates do not show."""


def format_without_calls(template: str) -> CallFormat:
    """Return the format for a template whose renderings show no format."""
    return next((calls for sign, calls in _WITHOUT_CALLS if sign in template), GENERIC)


def completed(calls: CallFormat, template: str) -> CallFormat:
    """Return the format, with the parts that models with this template write although the template
    does not.
    """
    return replace(calls, **next((also for sign, also in _ALSO if sign in template), {}))
