"""The grammar of calls, in llguidance's Lark."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from lead.chat_format.constraint import GrammarWriter
from lead.chat_format.output_format import ReasoningMarkers
from lead.chat_format.request import ConversationFields
from lead.chat_format.request_parts import Tool
from lead.grammar.json_schema import check_schema
from lead.grammar.lark import check_size
from lead.settings.limits import RequestLimits
from lead.tools.call_beginnings import call_beginnings
from lead.tools.call_format import ID, NUMBER, CallFormat
from lead.tools.tagged_grammar import TaggedGrammar
from shared.errors import RequestError
from shared.sampling.call_grammars import CallGrammars

_ANY_ARGUMENTS = {"type": "object"}
_SPACE = r"/[ \n]{0,2}/"
"""An expression for white space before the arguments of a call that has begun."""
_MAX_ID_CHARACTERS = 16
"""The longest id, in characters, if the template requires no length. Mistral writes nine, Solar ten."""


def calls_rule(calls: CallFormat, request: ConversationFields, writer: GrammarWriter) -> str:
    """Return an expression for one or more calls of a request's tools; raises RequestError."""
    ways = []
    for tool in request.usable_tools:
        start, _ = calls.frame(tool.function.name, NUMBER, ID)
        ways.append(f"{_text(start, calls, writer)} {_rest(tool, calls, writer)}")
    writer.rules.append(f"call: {' | '.join(ways)}")
    is_one = request.one_call or calls.between is None
    several = "" if is_one else f"({writer.text(calls.between or '')} call)*"
    return f"{writer.text(calls.before)} call {several} {writer.text(calls.after)}".strip()


def call_grammars(
    calls: CallFormat,
    request: ConversationFields,
    reasoning: ReasoningMarkers | None,
    *,
    said: str,
    limits: RequestLimits,
    special_tokens: Mapping[str, int],
    check_grammar: Callable[[str], None],
) -> tuple[CallGrammars | None, list[str]]:
    """Return the grammars of optional calls (None: calls are not constrained), and warnings.

    A grammar applies once its call has begun. A warning says why a tool's arguments have no grammar; a
    `strict` tool without a grammar raises RequestError. Raises the errors of `check_grammar`.
    """
    grammars: dict[str, str] = {}
    problems = []

    def check(schema: object, field: str) -> Mapping[str, Any]:
        return check_schema(schema, limits, field)

    # a tool without a grammar of its arguments can still be called: only `strict` tools must have a grammar
    for tool in request.usable_tools:
        writer = GrammarWriter(check, special_tokens)
        try:
            grammar = writer.grammar(f"{_SPACE} {_rest(tool, calls, writer)}")
            check_size(grammar, limits, f"tools: {tool.function.name}")
        except RequestError as error:
            if tool.function.strict:
                raise
            problems.append(str(error))
        else:
            grammars[calls.written_name(tool.function.name)] = grammar
            if tool.function.strict:
                check_grammar(grammar)
    if not grammars or not (found := call_beginnings(calls, grammars)):
        return None, problems
    # grammars apply to answers, not to calls that the model only thinks about
    marks = (reasoning.start, reasoning.end) if reasoning else ("", "")
    known = CallGrammars(grammars=grammars, reasoning=marks, said=said.encode(), **found._asdict())
    return known, problems


def _rest(tool: Tool, calls: CallFormat, writer: GrammarWriter) -> str:
    """Return an expression for a call's arguments, and the text that closes the call."""
    _, end = calls.frame(tool.function.name, NUMBER, ID)
    try:
        arguments = _arguments(calls, tool.function.parameters or _ANY_ARGUMENTS, writer)
    except RequestError as error:
        message = str(error).removeprefix("tools: ")
        raise RequestError(f"tools: {tool.function.name}: {message}", "tools") from error
    return f"{arguments} {_text(end, calls, writer)}"


def _text(text: str, calls: CallFormat, writer: GrammarWriter) -> str:
    """Return an expression for `text`, with the allowed values in place of its placeholders."""
    length = calls.id_characters or f"1,{_MAX_ID_CHARACTERS}"
    places = {NUMBER: "/[0-9]+/", ID: f"/[0-9a-zA-Z]{{{length}}}/"}
    parts = filter(None, re.split(f"([{NUMBER}{ID}])", text))
    return " ".join(places.get(part) or writer.text(part) for part in parts)


def _arguments(calls: CallFormat, parameters: Mapping[str, Any], writer: GrammarWriter) -> str:
    if calls.arguments is None:
        return writer.json(parameters, "tools")
    tagged = TaggedGrammar(calls.arguments, writer.rules, writer.json, writer.special_tokens)
    return tagged.of(writer.check(parameters, "tools"))
