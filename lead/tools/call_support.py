"""The ring's implementation of tool calls, which the core uses through `lead.chat_format.calls`."""

import json
from dataclasses import replace

from lead.chat_format.calls import Tools
from lead.chat_format.probes import Render
from lead.tools.argument_types import argument_types
from lead.tools.call_format import CallFormat
from lead.tools.call_grammar import call_grammars as grammars
from lead.tools.call_grammar import calls_rule as rule
from lead.tools.call_probes import derive_call_format
from lead.tools.call_reader import CallReader
from lead.tools.call_steps import simple_tools, steps
from lead.tools.known_formats import GENERIC, completed, format_without_calls

__all__ = (
    "argument_types",
    "derive",
    "grammars",
    "instructions",
    "reader",
    "rule",
    "simple_tools",
    "steps",
)

_TOOLS_PROMPT = (
    "You can call tools. They are, with JSON schemas of their parameters:\n\n%s\n\n"
    'Answer with JSON only: {"tool_calls": [{"name": NAME, "arguments": {...}}]} to call tools, %s'
)
_OWN_TOOLS_PROMPT = (
    "You can call tools. They are, with JSON schemas of their parameters:\n\n%s\n\n"
    "To call one, write its name and its arguments like this:\n\n%s"
)
_MAY_CALL = 'or {"response": ...} with what you have to say.'
_MUST_CALL = "and call at least one."


def instructions(calls: CallFormat, tools: Tools, *, must_call: bool) -> str:
    """Return a description of the tools for the system message; empty if the template lists the tools."""
    if not calls.is_described:
        return ""
    listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    if calls.is_generic:
        return _TOOLS_PROMPT % (listed, _MUST_CALL if must_call else _MAY_CALL)
    example = calls.write([(tools[0]["function"]["name"], {"argument": "value"})])
    return _OWN_TOOLS_PROMPT % (listed, example)


reader = CallReader


def derive(render: Render, unfinished: str, source: str, *, lists_tools: bool) -> tuple[CallFormat, bool]:
    """Return the format of calls, and whether the template takes their arguments as objects (else as JSON
    text).

    Both are found by rendering conversations with calls. unfinished: text at the end of prompts that is part
    of the answer. source: the template's source. lists_tools: the template lists the tools.
    """
    found = derive_call_format(render, unfinished)
    if found is None:
        return format_without_calls(source) if lists_tools else GENERIC, True
    calls, as_object = found
    return replace(completed(calls, source), is_described=not lists_tools), as_object
