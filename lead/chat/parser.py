"""From the text that a model writes to reasoning, content and tool calls, piece by piece.

Text that may still become a mark is held back, and a call until its tool is known. What began like a call
and is none is content.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from lead.chat.deltas import Content, Delta, Reasoning, ToolCallArguments, ToolCallStart
from lead.chat.json_stream import ObjectStream, StringDecoder, ValueEnd
from lead.chat.reasoning import ReasoningMarkers
from lead.chat.tool_call_parser import ToolCallParser
from lead.chat.tool_formats import GENERIC, ToolFormat

_LONGEST_HEAD = 300
"""Characters of a call before its arguments: longer ones are none."""
_GENERIC_HEAD = re.compile(r'\s*\{\s*"(response|tool_calls)"\s*:\s*(?=\S)')
_SCRIPT_CALL = re.compile(r"\s*([\w.]+?)(?:\.call)?\((.*)\)\s*", re.DOTALL)
_SCRIPT_ARGUMENT = re.compile(r'\s*(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|[^,"]+)\s*,?')
_INTERPRETERS = ("python", "ipython", "code_interpreter")


class Mode(Enum):
    """What is being read."""

    CONTENT = auto()
    REASONING = auto()
    CALLS = auto()  # between calls
    OBJECT = auto()  # a call that is an object
    ARGUMENTS = auto()  # of a call whose name stood before
    SCRIPT = auto()
    GENERIC = auto()  # before it is known whether a generic answer calls tools
    GENERIC_TEXT = auto()
    GENERIC_JSON = auto()


@dataclass(frozen=True, slots=True)
class ParserConfig:
    """How to read an answer.

    family: None where no calls are looked for. opened: the prompt left the model in the midst of reasoning.
    thinking: None where reasoning stays in the content. single: at most one call counts.
    """

    reasoning: ReasoningMarkers | None = None
    in_reasoning: bool = False
    tool_format: ToolFormat | None = None
    ignored_markers: tuple[str, ...] = ()
    tools: frozenset[str] = frozenset()
    one_call: bool = False
    prefix: str = ""
    """Content that the prompt already holds and the client is to get, too."""


class OutputParser:
    """Reads one answer."""

    def __init__(self, config: ParserConfig) -> None:
        self._config = config
        self._text = ""
        self._raw = ""  # of a call that is not yet known to be one
        self._space = ""  # white space that may stand before a mark, and then counts for nothing
        self._said = False
        self._strips = False
        self.n_calls = 0
        """Tools that the answer calls."""
        self._call: ToolCallParser | None = None
        self._object = ObjectStream()
        self._end = ValueEnd()
        self._string = StringDecoder()
        after_thought = Mode.GENERIC if config.tool_format is GENERIC else Mode.CONTENT
        self._calm = after_thought
        self._mode = Mode.REASONING if config.reasoning and config.in_reasoning else after_thought
        self._strips = self._mode is Mode.REASONING
        self._prefix = config.prefix
        self._steps: dict[Mode, Callable[[], Iterator[Delta] | None]] = {
            Mode.CONTENT: self._read_content,
            Mode.REASONING: self._read_reasoning,
            Mode.CALLS: self._read_between,
            Mode.OBJECT: self._read_object,
            Mode.ARGUMENTS: self._read_arguments,
            Mode.SCRIPT: lambda: None,
            Mode.GENERIC: self._read_generic,
            Mode.GENERIC_TEXT: self._read_generic_text,
            Mode.GENERIC_JSON: self._read_generic_json,
        }

    def push(self, text: str) -> list[Delta]:
        """What has become certain with `text`."""
        self._text += text
        deltas: list[Delta] = []
        if self._prefix:
            deltas.append(Content(self._prefix))
            self._prefix = ""
        while self._text:
            step = self._steps[self._mode]()
            if step is None:
                break
            deltas += step
        return _joined(deltas)

    def finish(self) -> list[Delta]:
        """What was held back, now that nothing follows."""
        deltas = self.push("")
        left, self._text = self._raw + self._text, ""
        self._raw = ""
        match self._mode:
            case Mode.REASONING:
                if left.strip():
                    deltas.append(Reasoning(self._space + left))
            case Mode.SCRIPT:
                deltas += self._script(left)
            case Mode.ARGUMENTS | Mode.OBJECT if self._call and self._call.begun:
                deltas += self._call.finish()
            case Mode.CALLS if self.n_calls and self._is_closing(left):
                pass
            case _:
                if left or (self._space and not self.n_calls):
                    deltas += self._content(left)
                    if self._space and not self.n_calls:
                        deltas.append(Content(self._space))
        return _joined(deltas)

    # Each step takes something from the text and gives deltas, or gives None: more text is needed

    def _read_reasoning(self) -> Iterator[Delta] | None:
        thinking = self._config.reasoning
        assert thinking
        self._strip()
        at = self._text.find(thinking.end)
        n_sure = at if at >= 0 else len(self._text) - _overlap(self._text, (thinking.end,))
        sure = self._space + self._text[:n_sure]
        kept = sure.rstrip()
        self._space = "" if at >= 0 else sure[len(kept) :]
        self._text = self._text[n_sure:]
        if at >= 0:
            self._text = self._text[len(thinking.end) :]
            self._mode, self._strips = self._calm, True
        elif not kept:
            return None
        return iter([Reasoning(kept)] if kept else [])

    def _read_content(self) -> Iterator[Delta] | None:
        self._strip()
        if not self._text:
            return None
        if self._family_is_bare and not self._said:
            if not self._text.strip():
                return None
            if self._text.lstrip()[0] == "{":
                return self._begin_object()
        marks = self._marks()
        found = [(at, mark) for mark in marks if (at := self._text.find(mark)) >= 0]
        if not found:
            n_sure = len(self._text) - _overlap(self._text, marks)
            sure, self._text = self._text[:n_sure], self._text[n_sure:]
            return iter(self._content(sure)) if sure else None
        at, mark = min(found, key=lambda pair: (pair[0], -len(pair[1])))
        before, self._text = self._text[:at], self._text[at + len(mark) :]
        deltas = self._content(before)
        self._enter(mark)
        return iter(deltas)

    def _enter(self, mark: str) -> None:
        """A mark was found in the content."""
        family, thinking = self._config.tool_format, self._config.reasoning
        if thinking and mark == thinking.start:
            self._mode, self._strips, self._space = Mode.REASONING, True, ""
        elif family and mark in family.call_starts:
            self._mode, self._raw = Mode.CALLS, self._space + mark
            self._space = ""
        elif family and mark == family.python_tag:
            self._mode, self._raw, self._space = Mode.SCRIPT, self._space, ""

    def _read_between(self) -> Iterator[Delta] | None:
        """Behind the mark that call_starts calls, or behind a call."""
        family = self._config.tool_format
        assert family
        self._skip(family.separators)
        if not self._text:
            return None
        if self._text[0] == "{":
            return self._begin_object()
        opening = next((mark for mark in family.call_starts if self._text.startswith(mark)), None)
        if opening:
            self._raw, self._text = self._raw + opening, self._text[len(opening) :]
            return iter(())
        if _overlap(self._text, family.separators + family.call_starts) == len(self._text):
            return None
        return (
            self._read_head(family.call_header) if family.call_header and self._raw else self._leave_calls()
        )

    def _leave_calls(self) -> Iterator[Delta]:
        if self._raw:
            return self._give_up()
        self._mode, self._strips = Mode.CONTENT, True
        return iter(())

    def _read_head(self, call_header: re.Pattern[str]) -> Iterator[Delta] | None:
        brace = self._text.find("{")
        if brace < 0:
            return None if len(self._text) < _LONGEST_HEAD else self._give_up()
        match = call_header.fullmatch(self._text[:brace])
        if match is None:
            return self._give_up()
        self._take(brace)
        self._raw = ""
        groups = match.groupdict()
        self._call = self._new_call()
        self._end = ValueEnd()
        self._mode = Mode.ARGUMENTS
        return iter(self._begun(self._call.begin(groups["name"], groups.get("id"))))

    def _read_arguments(self) -> Iterator[Delta] | None:
        assert self._call
        n = self._end.push(self._text)
        value, self._text = self._text[:n], "" if n is None else self._text[n:]
        if n is not None:
            self._mode = Mode.CALLS
        return iter(self._counted(self._call.arguments(value)))

    def _begin_object(self) -> Iterator[Delta]:
        self._object = ObjectStream()
        self._call = self._new_call()
        self._mode = Mode.OBJECT
        return iter(())

    def _read_object(self) -> Iterator[Delta]:
        call, text = self._call, self._text
        assert call
        self._text = ""
        deltas: list[Delta] = []
        if not call.begun:
            self._raw += text
        for member in self._object.push(text):
            deltas += call.take(member)
            if call.begun:
                self._raw = ""
            if call.unknown:
                self._object.failed = True
                break
        rest = self._object.rest
        if self._object.failed or (rest is not None and not call.begun):
            return self._give_up()
        counted = (
            self._begun(deltas)
            if any(isinstance(d, ToolCallStart) for d in deltas)
            else self._counted(deltas)
        )
        if rest is not None:
            counted += self._counted(call.finish())
            self._text, self._mode, self._raw = rest, Mode.CALLS, ""
        return iter(counted)

    def _read_generic(self) -> Iterator[Delta] | None:
        head = _GENERIC_HEAD.match(self._text)
        if head is None:
            return self._leave_calls() if self._text.lstrip()[:1] not in {"", "{"} else None
        self._text = self._text[head.end() :]
        if head[1] == "tool_calls":
            self._text = self._text.removeprefix("[")
            self._mode = Mode.CALLS
        elif self._text.startswith('"'):
            self._text = self._text[1:]
            self._mode = Mode.GENERIC_TEXT
        else:
            self._mode = Mode.GENERIC_JSON
        return iter(())

    def _read_generic_text(self) -> Iterator[Delta]:
        text, self._text = self._text, ""
        if self._string.rest is not None:
            return iter(())
        decoded = self._string.push(text)
        return iter([Content(decoded)] if decoded else [])

    def _read_generic_json(self) -> Iterator[Delta]:
        n = self._end.push(self._text)
        value, self._text = self._text[:n], ""
        if n is not None:
            self._mode, self._string.rest = Mode.GENERIC_TEXT, ""
        return iter([Content(value)] if value else [])

    # Calls

    def _new_call(self) -> ToolCallParser:
        family = self._config.tool_format
        assert family
        known = self._config.tools if family.json_only else None
        return ToolCallParser(self.n_calls, known, family.id_characters)

    def _begun(self, deltas: list[Delta]) -> list[Delta]:
        self.n_calls += 1
        self._space = ""
        return self._counted(deltas)

    def _counted(self, deltas: list[Delta]) -> list[Delta]:
        """Without those of calls that the client did not want to be made together."""
        if self._config.one_call and self.n_calls > 1:
            return []
        return deltas

    def _give_up(self) -> Iterator[Delta]:
        """What began like a call is content."""
        text, self._raw, self._text = self._raw + self._text, "", ""
        self._mode, self._call, self._said = Mode.CONTENT, None, True
        return iter([Content(text)] if text else [])

    def _script(self, text: str) -> list[Delta]:
        """A call written as a program: `name.call(key="value")`, or code for an interpreter."""
        if text.lstrip().startswith("{"):
            reader = OutputParser(
                ParserConfig(tool_format=self._config.tool_format, tools=self._config.tools)
            )
            deltas = [*reader.push(text), *reader.finish()]
            self.n_calls += reader.n_calls
            return deltas
        call = _SCRIPT_CALL.fullmatch(text)
        if call and call[1] in self._config.tools:
            arguments = {key: _literal(value) for key, value in _SCRIPT_ARGUMENT.findall(call[2])}
            return self._scripted(call[1], arguments)
        interpreter = next((name for name in _INTERPRETERS if name in self._config.tools), None)
        if interpreter is None or not text.strip():
            return [Content(text)] if text else []
        return self._scripted(interpreter, {"code": text})

    def _scripted(self, name: str, arguments: object) -> list[Delta]:
        call = self._new_call()
        return self._begun(
            [*call.begin(name, None), *call.arguments(json.dumps(arguments, ensure_ascii=False))]
        )

    # Text

    @property
    def _family_is_bare(self) -> bool:
        return self._config.tool_format is not None and self._config.tool_format.json_only

    def _marks(self) -> tuple[str, ...]:
        config = self._config
        marks = list(config.ignored_markers)
        interleaved = config.tool_format.interleaved if config.tool_format else bool(config.ignored_markers)
        if config.reasoning and (interleaved or not self._said):
            marks.append(config.reasoning.start)
        if config.tool_format:
            marks += config.tool_format.call_starts
            marks += [config.tool_format.python_tag] if config.tool_format.python_tag else []
        return tuple(marks)

    def _content(self, text: str) -> list[Delta]:
        """Text that is no mark; white space at its end waits where calls may follow."""
        text = self._space + text
        kept = text.rstrip() if self._config.tool_format else text
        self._space = text[len(kept) :]
        self._said = self._said or bool(kept.strip())
        return [Content(kept)] if kept else []

    def _strip(self) -> None:
        if self._strips:
            self._text = self._text.lstrip()
            self._strips = not self._text

    def _skip(self, marks: Collection[str]) -> None:
        """White space and `marks`."""
        while True:
            n = len(self._text) - len(self._text.lstrip())
            n += max((len(mark) for mark in marks if self._text.startswith(mark, n)), default=0)
            if n == 0:
                return
            self._take(n)

    def _take(self, n: int) -> None:
        if self._raw:
            self._raw += self._text[:n]
        self._text = self._text[n:]

    def _is_closing(self, text: str) -> bool:
        family = self._config.tool_format
        return not text.strip() or (
            family is not None and (family is GENERIC or _overlap(text, family.separators) == len(text))
        )


def _joined(deltas: list[Delta]) -> list[Delta]:
    """Neighbours of a kind as one."""
    joined: list[Delta] = []
    for delta in deltas:
        match joined[-1] if joined else None, delta:
            case Content(before), Content(after):
                joined[-1] = Content(before + after)
            case Reasoning(before), Reasoning(after):
                joined[-1] = Reasoning(before + after)
            case ToolCallArguments(index, before), ToolCallArguments(other, after) if index == other:
                joined[-1] = ToolCallArguments(index, before + after)
            case _:
                joined.append(delta)
    return joined


def _overlap(text: str, marks: Collection[str]) -> int:
    """The length of the longest end of `text` that is a proper beginning of a mark."""
    longest = max((len(mark) - 1 for mark in marks), default=0)
    for n in range(min(len(text), longest), 0, -1):
        if any(mark.startswith(text[-n:]) and len(mark) > n for mark in marks):
            return n
    return 0


def _literal(value: str) -> object:
    try:
        return json.loads(value)
    except ValueError:
        return value.strip()
