"""The grammar of an answer that must be JSON of a schema, a tool call, or either."""

from collections.abc import Callable, Mapping
from typing import Any

from lead.chat_format.calls import AnyCallFormat, call_support
from lead.chat_format.output_format import ReasoningMarkers
from lead.chat_format.request import ConversationFields
from lead.grammar.json_rules import JsonRules
from lead.grammar.lark import lark_grammar, spelled, text_up_to

CheckSchema = Callable[[object, str], Mapping[str, Any]]
"""A function that converts a JSON schema from the named field to a schema that llguidance can read; raises
RequestError.
"""


def grammar_for(
    request: ConversationFields,
    tool_format: AnyCallFormat | None,
    reasoning: ReasoningMarkers | None,
    *,
    in_reasoning: bool,
    check: CheckSchema,
    special_tokens: Mapping[str, int],
) -> str | None:
    """Return the grammar of the answer to a request without a grammar of its own; None: any text is allowed.

    reasoning: the markers of reasoning that may come first. in_reasoning: the prompt has already begun the
    reasoning.
    """
    around = tool_format.around_content if tool_format else ("", "")
    writer = GrammarWriter(check, special_tokens)
    ways = []
    if not request.must_call and (request.content_schema is not None or around[0]):
        ways.append(writer.content(request, around))
    if tool_format and request.usable_tools and (ways or request.must_call) and (support := call_support()):
        ways.append(support.rule(tool_format, request, writer))
    if not ways:
        return None
    body = " | ".join(ways)
    if reasoning is not None:
        body = f"{writer.reasoning(reasoning, in_reasoning=in_reasoning)} ({body})"
    return writer.grammar(body)


class GrammarWriter:
    """Collects the rules of a Lark grammar; the methods return expressions that refer to these rules.

    If a marker is the text of a special token, the answer may write the marker with that token or with
    ordinary tokens.
    """

    def __init__(self, check: CheckSchema, special_tokens: Mapping[str, int]) -> None:
        self.check = check
        self.special_tokens = special_tokens
        self.rules: list[str] = []
        self._json_rules = JsonRules(self.rules)

    def grammar(self, body: str) -> str:
        return lark_grammar([f"start: {body}", *self.rules])

    def content(self, request: ConversationFields, around: tuple[str, str]) -> str:
        schema = {"type": "string"} if request.content_schema is None else request.content_schema
        name = self.json(schema, request.schema_field)
        return " ".join(filter(None, (self.text(around[0]), name, self.text(around[1]))))

    def reasoning(self, markers: ReasoningMarkers, *, in_reasoning: bool) -> str:
        """Return an expression for reasoning: text up to the first end marker, that marker, and the white
        space after it.
        """
        ends = text_up_to(markers.end, "text_to_end_marker", self.rules, self.special_tokens)
        self.rules.append(f"reasoning: ({ends}) /[ \\n]*/")
        return "reasoning" if in_reasoning else f"({self.text(markers.start)} reasoning)?"

    def text(self, text: str) -> str:
        return spelled(text, self.special_tokens) if text else ""

    def json(self, schema: object, field: str) -> str:
        return self._json_rules.of(self.check(schema, field))
