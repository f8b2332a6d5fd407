"""What an answer has to look like, as a grammar: JSON of a schema, a tool call, or either."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from lead.chat.output_format import ReasoningMarkers
from lead.chat.request import ConversationFields
from lead.chat.request_parts import Tool
from lead.grammar.json_rules import JsonRules
from lead.grammar.json_schema import check_schema
from lead.grammar.lark import check_size, lark_grammar, spelled, text_up_to
from lead.settings.limits import RequestLimits
from lead.tools.call_beginnings import call_beginnings
from lead.tools.call_format import ID, NUMBER, CallFormat
from lead.tools.tagged_grammar import TaggedGrammar
from shared.errors import RequestError
from shared.sampling.call_grammars import CallGrammars

CheckSchema = Callable[[object, str], Mapping[str, Any]]
"""Turns a JSON schema from the named field into one that llguidance reads; raises RequestError."""

_RESPONSE = '{"response": '
_ANY_ARGUMENTS = {"type": "object"}
_SPACE = r"/[ \n]{0,2}/"
"""Before the arguments, when a call has begun."""
_MAX_ID_CHARACTERS = 16
"""Of a call's id where the template requires no number. Models write nine (Mistral) or ten (Solar)."""


def grammar_for(
    request: ConversationFields,
    tool_format: CallFormat | None,
    reasoning: ReasoningMarkers | None,
    *,
    in_reasoning: bool,
    check: CheckSchema,
    special_tokens: Mapping[str, int],
) -> str | None:
    """The grammar of the answer, unless the client sent one; None where any text will do.

    `reasoning` are the markers of reasoning that may come first, `in_reasoning` if the prompt began it.
    """
    is_generic = tool_format is not None and tool_format.is_generic
    writer = _Writer(check, special_tokens)
    ways = []
    if not request.must_call and (request.content_schema is not None or is_generic):
        ways.append(writer.content(request, tool_format))
    if tool_format and request.usable_tools and (ways or request.must_call):
        ways.append(writer.calls(request, tool_format))
    if not ways:
        return None
    body = " | ".join(ways)
    if reasoning is not None:
        body = f"{writer.reasoning(reasoning, in_reasoning=in_reasoning)} ({body})"
    return writer.grammar(body)


def call_grammars(
    request: ConversationFields,
    tool_format: CallFormat,
    reasoning: ReasoningMarkers | None,
    *,
    said: str,
    limits: RequestLimits,
    special_tokens: Mapping[str, int],
) -> tuple[CallGrammars | None, list[str]]:
    """What applies once a call has begun in an answer that may also have none; None: nothing does.

    Also why tools have no grammar of their arguments; for one that is `strict` that is raised.
    """
    grammars: dict[str, str] = {}
    problems = []

    def check(schema: object, field: str) -> Mapping[str, Any]:
        return check_schema(schema, limits, field)

    for tool in request.usable_tools:
        try:
            grammar = _Writer(check, special_tokens).rest_of_call(tool, tool_format)
            check_size(grammar, limits, f"tools: {tool.function.name}")
        except RequestError as error:
            if tool.function.strict:
                raise
            problems.append(str(error))
        else:
            grammars[tool_format.written_name(tool.function.name)] = grammar
    if not grammars or not (found := call_beginnings(tool_format, grammars)):
        return None, problems
    marks = (reasoning.start, reasoning.end) if reasoning else ("", "")
    calls = CallGrammars(grammars=grammars, reasoning=marks, said=said.encode(), **found._asdict())
    return calls, problems


class _Writer:
    """Collects rules. A marker may be written as the special token of that text, or letter by letter."""

    def __init__(self, check: CheckSchema, special_tokens: Mapping[str, int]) -> None:
        self._check = check
        self._special_tokens = special_tokens
        self._rules: list[str] = []
        self._json_rules = JsonRules(self._rules)

    def grammar(self, body: str) -> str:
        return lark_grammar([f"start: {body}", *self._rules])

    def content(self, request: ConversationFields, tool_format: CallFormat | None) -> str:
        schema = {"type": "string"} if request.content_schema is None else request.content_schema
        name = self._json(schema, request.schema_field)
        if not (tool_format and tool_format.is_generic):
            return name
        return f"{self._text(_RESPONSE)} {name} {self._text('}')}"

    def calls(self, request: ConversationFields, tool_format: CallFormat) -> str:
        calls = []
        places = _places(tool_format)
        for tool in request.usable_tools:
            start, _ = tool_format.frame(tool.function.name, NUMBER, ID)
            calls.append(f"{self._text(start, places)} {self._rest(tool, tool_format)}")
        self._rules.append(f"call: {' | '.join(calls)}")
        is_one = request.one_call or tool_format.between is None
        several = "" if is_one else f"({self._text(tool_format.between or '')} call)*"
        return f"{self._text(tool_format.before)} call {several} {self._text(tool_format.after)}".strip()

    def rest_of_call(self, tool: Tool, tool_format: CallFormat) -> str:
        """The grammar of the arguments and what closes the call."""
        return self.grammar(f"{_SPACE} {self._rest(tool, tool_format)}")

    def _rest(self, tool: Tool, tool_format: CallFormat) -> str:
        """The arguments and what closes the call."""
        _, end = tool_format.frame(tool.function.name, NUMBER, ID)
        try:
            arguments = self._arguments(tool.function.parameters or _ANY_ARGUMENTS, tool_format)
        except RequestError as error:
            message = str(error).removeprefix("tools: ")
            raise RequestError(f"tools: {tool.function.name}: {message}", "tools") from error
        return f"{arguments} {self._text(end, _places(tool_format))}"

    def _arguments(self, parameters: Mapping[str, Any], tool_format: CallFormat) -> str:
        if tool_format.arguments is None:
            return self._json(parameters, "tools")
        writer = TaggedGrammar(tool_format.arguments, self._rules, self._json, self._special_tokens)
        return writer.of(self._check(parameters, "tools"))

    def reasoning(self, markers: ReasoningMarkers, *, in_reasoning: bool) -> str:
        """Text up to the first end marker, and the white space after it."""
        ends = text_up_to(markers.end, "text_to_end_marker", self._rules, self._special_tokens)
        self._rules.append(f"reasoning: ({ends}) /[ \\n]*/")
        return "reasoning" if in_reasoning else f"({self._text(markers.start)} reasoning)?"

    def _text(self, text: str, places: Mapping[str, str] = MappingProxyType({})) -> str:
        """places: what to write where these characters stand."""
        parts = filter(None, re.split(f"([{NUMBER}{ID}])", text))
        return " ".join(places.get(part) or spelled(part, self._special_tokens) for part in parts)

    def _json(self, schema: object, field: str) -> str:
        return self._json_rules.of(self._check(schema, field))


def _places(tool_format: CallFormat) -> Mapping[str, str]:
    """What may stand in the places of a format."""
    length = tool_format.id_characters or f"1,{_MAX_ID_CHARACTERS}"
    return {NUMBER: "/[0-9]+/", ID: f"/[0-9a-zA-Z]{{{length}}}/"}
