"""What an answer has to look like, as a grammar: JSON of a schema, a tool call, or either."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lead.chat.reasoning import ReasoningMarkers
from lead.chat.tool_formats import GENERIC, ToolFormat
from lead.chat.tools import Tool
from lead.grammar.rules import literal

Convert = Callable[[object, str], str]
"""From a JSON schema, and the field that it came in, to a grammar; raises RequestError."""

_SYMBOL = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|(?P<name>[a-zA-Z][a-zA-Z0-9-]*)')
_RESPONSE = literal('{"response": ')
_ANY_ARGUMENTS = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Demand:
    """What the client asks for.

    schema: of the content; None for any text. tools: those that may be called. must_call: without content.
    several: more than one call may be made.
    """

    schema: object | None = None
    schema_field: str = "response_format"
    tools: Sequence[Tool] = ()
    must_call: bool = False
    several: bool = True


def constrain(
    demand: Demand,
    family: ToolFormat | None,
    thinking: ReasoningMarkers | None,
    *,
    opened: bool,
    convert: Convert,
) -> str | None:
    """The grammar of what is demanded; None where any text will do.

    `thinking` are the marks of reasoning that may come first, `opened` if the prompt began it.
    """
    writer = _Writer(convert)
    ways = []
    if not demand.must_call and (demand.schema is not None or family is GENERIC):
        ways.append(writer.content(demand, family))
    if family and demand.tools and (ways or demand.must_call):
        ways.append(writer.calls(demand, family))
    if not ways:
        return None
    body = " | ".join(ways)
    if thinking is not None:
        body = f"{writer.thought(thinking, opened=opened)} ({body})"
    return writer.text(body)


class _Writer:
    """Writes rules; a part's own rules get a prefix, so that parts do not meet."""

    def __init__(self, convert: Convert) -> None:
        self._convert = convert
        self._rules: list[str] = []
        self._n_parts = 0

    def text(self, root: str) -> str:
        return "\n".join([f"root ::= {root}", *self._rules]) + "\n"

    def content(self, demand: Demand, family: ToolFormat | None) -> str:
        schema = {"type": "string"} if demand.schema is None else demand.schema
        name = self._part(schema, demand.schema_field)
        if family is not GENERIC:
            return name
        return f"{_RESPONSE} {name} {literal('}')}"

    def calls(self, demand: Demand, family: ToolFormat) -> str:
        ways = []
        for tool in demand.tools:
            start, end = family.frame(tool.function.name)
            arguments = self._part(tool.function.parameters or _ANY_ARGUMENTS, "tools")
            ways.append(f"{literal(start)} {arguments} {literal(end)}".replace(' ""', ""))
        self._rules.append(f"call ::= {' | '.join(ways)}")
        several = f" ({literal(family.between)} call)*" if demand.several else ""
        before, after = (literal(text) if text else "" for text in (family.before, family.after))
        return f"{before} call{several} {after}".strip()

    def thought(self, thinking: ReasoningMarkers, *, opened: bool) -> str:
        """Text up to the mark at its end: what begins like the mark goes on in another way."""
        end = thinking.end
        steps = [
            f"{literal(end[:n])} {_other_than(end[n])}" if n else _other_than(end[0]) for n in range(len(end))
        ]
        self._rules.append(f"thinking ::= ({' | '.join(steps)})* {literal(end)} [ \\n]*")
        return "thinking" if opened else f"({literal(thinking.start)} thinking)?"

    def _part(self, schema: object, field: str) -> str:
        self._n_parts += 1
        prefix = f"part{self._n_parts}-"

        def rename(symbol: re.Match[str]) -> str:
            return f"{prefix}{symbol['name']}" if symbol["name"] else symbol[0]

        self._rules.append(_SYMBOL.sub(rename, self._convert(schema, field)).rstrip())
        return f"{prefix}root"


def _other_than(c: str) -> str:
    return f"[^{c}]" if c not in "]\\^-" else f"[^\\{c}]"
