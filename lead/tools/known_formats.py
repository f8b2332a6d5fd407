"""What chat templates do not show of the format of calls: by a text in the template, and why it is here."""

from dataclasses import replace

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
"""For templates without tools: these are described in words, and the answer is made JSON.

And for MiniMax M3, which writes objects and lists in arguments as tags inside tags, named as their members:
to read these takes the whole schema, and so would a grammar.
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


def format_without_calls(template: str) -> CallFormat:
    """Of a template from whose renderings none was derived."""
    return next((calls for sign, calls in _WITHOUT_CALLS if sign in template), GENERIC)


def completed(calls: CallFormat, template: str) -> CallFormat:
    """The format with what models of this template write, too, but the template does not."""
    if "<|channel|>" in template:  # gpt-oss: a call may be in any channel, and the recipient before it
        starts = ("<|channel|>commentary to=functions.", "<|channel|>analysis to=functions.")
        head = f"<|channel|>commentary to=functions.{NAME} <|constrain|>json<|message|>"
        return replace(
            calls, head=head, tail="", starts=(*starts, " to=functions.", "to=functions."), ends=("<|call|>",)
        )
    if ">>>all" in template:  # Functionary 3.2: the prompt ends with the first marker
        return replace(calls, head=f">>>{calls.head}", between="", starts=(">>>",), ends=())
    if "<|python_tag|>" in template:  # Llama 3: calls of built-in tools
        between = "; " if calls.between is None else calls.between
        return replace(calls, code_tag="<|python_tag|>", between=between, ends=())
    return calls
