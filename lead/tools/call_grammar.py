"""The grammar of calls, in llguidance's Lark."""

import re
from collections.abc import Mapping
from typing import Any

from lead.chat.constraint import GrammarWriter
from lead.chat.request import ConversationFields
from lead.tools.call_format import ID, NUMBER, CallFormat
from lead.tools.tagged_grammar import TaggedGrammar
from shared.errors import RequestError

_ANY_ARGUMENTS = {"type": "object"}
_MAX_ID_CHARACTERS = 16
"""Of a call's id where the template requires no number. Models write nine (Mistral) or ten (Solar)."""


def calls_rule(calls: CallFormat, request: ConversationFields, writer: GrammarWriter) -> str:
    """An expression for calls of the tools of a request; raises RequestError."""
    ways = []
    length = calls.id_characters or f"1,{_MAX_ID_CHARACTERS}"
    places = {NUMBER: "/[0-9]+/", ID: f"/[0-9a-zA-Z]{{{length}}}/"}

    def text(given: str) -> str:
        parts = filter(None, re.split(f"([{NUMBER}{ID}])", given))
        return " ".join(places.get(part) or writer.text(part) for part in parts)

    for tool in request.usable_tools:
        start, end = calls.frame(tool.function.name, NUMBER, ID)
        try:
            arguments = _arguments(calls, tool.function.parameters or _ANY_ARGUMENTS, writer)
        except RequestError as error:
            message = str(error).removeprefix("tools: ")
            raise RequestError(f"tools: {tool.function.name}: {message}", "tools") from error
        ways.append(f"{text(start)} {arguments} {text(end)}")
    writer.rules.append(f"call: {' | '.join(ways)}")
    is_one = request.one_call or calls.between is None
    several = "" if is_one else f"({writer.text(calls.between or '')} call)*"
    return f"{writer.text(calls.before)} call {several} {writer.text(calls.after)}".strip()


def _arguments(calls: CallFormat, parameters: Mapping[str, Any], writer: GrammarWriter) -> str:
    if calls.arguments is None:
        return writer.json(parameters, "tools")
    tagged = TaggedGrammar(calls.arguments, writer.rules, writer.json, writer.special_tokens)
    return tagged.of(writer.check(parameters, "tools"))
