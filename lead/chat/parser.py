"""From the text of an answer to reasoning, content and tool calls, piece by piece.

Text that may become a marker is held back, and so is a call until its tool is known. Text that began like a
call and is not one is content. The result does not depend on how the text is cut into pieces.

The work is linear in the length of the answer, whatever a client makes the model write: text is read through
a window, waiting for more text is bounded, and so is the number of objects that are read again because they
are no calls.
"""

import json
import re
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from lead.chat.deltas import Content, Delta, Reasoning, ToolCallStart, merge_deltas
from lead.chat.output_format import ParserConfig
from lead.chat.tool_calls import HeldCall, ToolCallParser, new_id, parse_python_call
from lead.tools.json_stream import ObjectStream, ResponseStream, ValueScanner
from lead.tools.markers import MARKER, TextPieces, partial_marker_length, split_at_marker
from lead.tools.tagged_reader import TaggedReader

_MAX_HEADER_CHARACTERS = 300
"""The longest text before the arguments of a call; with more it is not a call."""
_MAX_SPACE_CHARACTERS = 256
"""White space that waits for a marker; what comes before is certain."""
_MAX_SEPARATOR_CHARACTERS = 100
"""Between a marker and the call that it begins; with more it begins none."""
_MAX_REJECTED_OBJECTS = 16
"""Each may be as long as the answer and is read twice; after this many, no more calls are looked for."""
_WINDOW_CHARACTERS = 512
"""How much text is looked at once: each step may copy all of it."""
_GENERIC_HEAD = re.compile(r'\s*\{\s*"(response|tool_calls)"\s*:\s*(?=\S)')


class _Mode(Enum):
    """What is being read, where that needs no memory of its own."""

    CONTENT = auto()
    REASONING = auto()
    CALLS = auto()  # between calls, or before the first
    GENERIC = auto()  # a generic answer before its first value


@dataclass(frozen=True, slots=True)
class _ObjectCall:
    call: ToolCallParser
    object: ObjectStream = field(default_factory=ObjectStream)


@dataclass(frozen=True, slots=True)
class _NamedCall:
    """A call whose name came before; its arguments are read."""

    call: ToolCallParser
    value: ValueScanner = field(default_factory=ValueScanner)


@dataclass(frozen=True, slots=True)
class _TaggedCall:
    """A call whose arguments are written one by one."""

    call: ToolCallParser
    reader: TaggedReader


@dataclass(frozen=True, slots=True)
class _MaybeCall:
    """What begins like a call inside reasoning: it is one if the reasoning never ends."""

    pieces: list[str]


@dataclass(frozen=True, slots=True)
class _Code:
    pieces: list[str] = field(default_factory=list)


class OutputParser:
    def __init__(self, config: ParserConfig) -> None:
        self._config = config
        self._format = config.tool_format
        self._pending: list[Delta] = [Content(config.prefix)] if config.prefix else []
        self._text = ""  # the window: not read yet
        self._later = TextPieces(config.unfinished)  # what comes after it
        self._finished = False
        self._space = ""  # white space that is dropped before a marker
        self._held = HeldCall()
        self._n_rejected_objects = 0
        self._has_content = False
        self._call: list[Delta] = []  # of the call that is being read
        self._used_ids = set(config.used_ids)
        self.n_calls = 0
        """The number of tool calls so far."""
        self._after_reasoning = _Mode.GENERIC if self._format and self._format.is_generic else _Mode.CONTENT
        self._mode: _Mode | _ObjectCall | _NamedCall | _TaggedCall | _MaybeCall | _Code | ResponseStream = (
            self._after_reasoning
        )
        if config.reasoning and config.in_reasoning:
            self._mode = _Mode.REASONING
        self._skips_space = self._mode is _Mode.REASONING and not config.continues_reasoning
        self._readers = {
            _Mode.CONTENT: self._read_content,
            _Mode.REASONING: self._read_reasoning,
            _Mode.CALLS: self._read_between_calls,
            _Mode.GENERIC: self._read_generic,
        }

    def push(self, text: str) -> list[Delta]:
        """The deltas that have become certain with `text`."""
        self._later.append(text)
        return merge_deltas(self._read())

    def finish(self, *, is_cut: bool = False) -> list[Delta]:
        """The deltas that were held back, now that the answer is complete; of a call only if that is.

        is_cut: the model would have gone on.
        """
        self._finished = True
        deltas = self._read()
        if isinstance(self._mode, _MaybeCall):
            deltas += self._leave_draft(self._mode.pieces)
        while self._is_unfinished_call():
            if is_cut:
                return merge_deltas(deltas)
            deltas += self._reject_call()
            deltas += self._read()
        match self._mode:
            case _Code(pieces) if pieces:
                deltas += self._finish_code("".join(pieces))
            case _TaggedCall(call, reader) if reader.is_whole and not is_cut:
                self._call += call.arguments(reader.finish())
                deltas += self._end_call(call)
            case _ObjectCall() | _NamedCall() | _TaggedCall():
                pass
            case _ if not self._is_separator(self._text):
                deltas += self._content(self._text)
        if self._space and not self.n_calls and self._mode is not _Mode.REASONING:
            deltas.append(Content(self._space))
        return merge_deltas(deltas)

    def _read(self) -> list[Delta]:
        deltas, self._pending = self._pending, []
        while True:
            step = self._read_step() if self._text else None
            if step is not None:
                deltas += step
            elif self._later:
                self._text += self._later.take(_WINDOW_CHARACTERS)
            else:
                return deltas

    @property
    def _complete(self) -> bool:
        """Whether nothing comes after the window."""
        return self._finished and not self._later

    def _read_step(self) -> list[Delta] | None:  # noqa: PLR0911 - one for each mode
        """Read some of the text; None if more text is needed for that."""
        match self._mode:
            case _Mode() as mode:
                return self._readers[mode]()
            case _ObjectCall(call, stream):
                return self._read_object(call, stream)
            case _NamedCall(call, value):
                return self._read_arguments(call, value)
            case _TaggedCall(call, reader):
                return self._read_tagged(call, reader)
            case _MaybeCall(pieces):
                return self._read_draft(pieces)
            case _Code(pieces):
                return self._read_code(pieces)
            case ResponseStream() as response:
                return self._read_response(response)

    def _read_reasoning(self) -> list[Delta] | None:
        assert self._config.reasoning
        self._skip_space()
        end = self._config.reasoning.end
        text, marker, self._text = split_at_marker(
            self._text, (end, *self._call_starts()), complete=self._complete
        )
        kept, space = _split_space(self._space + text)
        self._space = "" if marker else space
        if marker == end:
            self._mode, self._skips_space = self._after_reasoning, True
        elif marker:
            self._mode, self._space = _MaybeCall([space + marker]), ""
        elif not kept:
            return None
        return [Reasoning(kept)] if kept else []

    def _read_draft(self, pieces: list[str]) -> list[Delta] | None:
        assert self._config.reasoning
        end = self._config.reasoning.end
        text, marker, self._text = split_at_marker(self._text, (end,), complete=self._complete)
        pieces.append(text)
        if not marker:
            return [] if text else None
        kept, self._space = _split_space("".join(pieces))
        self._mode, self._skips_space, self._space = self._after_reasoning, True, ""
        return [Reasoning(kept)]

    def _leave_draft(self, pieces: list[str]) -> list[Delta]:
        """The reasoning never ended: what began like a call is one."""
        self._mode, self._text = self._after_reasoning, "".join([*pieces, self._text])
        return self._read()

    def _read_content(self) -> list[Delta] | None:
        self._skip_space()
        if self._format and self._format.json_only and not self._has_content:
            if not self._text.strip() and len(self._text) <= _MAX_SPACE_CHARACTERS:
                return None
            if self._text.lstrip()[:1] == "{":
                return self._begin_object()
        markers = self._markers_in_content()
        text, marker, self._text = split_at_marker(self._text, markers, complete=self._complete)
        if not text and not marker:
            return None
        deltas = self._content(text)
        if marker and self._config.reasoning and marker == self._config.reasoning.start:
            self._mode, self._skips_space, self._space = _Mode.REASONING, True, ""
        elif marker and self._format and marker == self._format.code_tag:
            self._mode, self._space = _Code(), ""
        elif marker and self._format and marker in self._format.starts:
            self._begin_calls(marker)
        return deltas

    def _read_between_calls(self) -> list[Delta] | None:
        assert self._format
        self._skip_separators()
        if self._held.n_separators > _MAX_SEPARATOR_CHARACTERS:
            return self._reject_call()
        if not self._text or self._text[0] == "{":
            return self._begin_object() if self._text else None
        start = next((marker for marker in self._format.starts if self._text.startswith(marker)), None)
        if start:
            return self._read_start(start)
        if self._is_partial_marker():
            return None
        if self._format.header and (self._held or (self.n_calls and self._format.is_bare)):
            return self._read_header(self._format.header)
        return self._leave_calls()

    def _read_start(self, marker: str) -> list[Delta]:
        if self._held.has_marker(marker):  # twice before a call
            return self._reject_call()
        self._begin_calls(marker)
        self._text = self._text[len(marker) :]
        return []

    def _is_partial_marker(self) -> bool:
        """Whether the text begins a marker; at the end of an answer, one that may follow a call."""
        assert self._format
        if self._complete:
            return not self._held and self._is_separator(self._text)
        markers = (*self._format.ends, *self._format.starts)
        return partial_marker_length(self._text, markers) == len(self._text)

    def _read_header(self, header: re.Pattern[str]) -> list[Delta] | None:
        assert self._format
        end = self._format.header_length(self._text[:_MAX_HEADER_CHARACTERS])
        if end < 0:
            return None if len(self._text) < _MAX_HEADER_CHARACTERS else self._reject_call()
        match = header.fullmatch(" ".join(self._text[:end].split()))
        if match is None or not self._is_known(match["name"]):
            return self._reject_call()
        self._text = self._text[end:]
        self._held.release()
        call = self._new_call()
        groups = match.groupdict()
        self._mode = self._arguments_of(call, groups["name"])
        self._call = call.begin(groups["name"], groups.get("id"))
        return []

    def _is_known(self, name: str) -> bool:
        """Whether a call of the tool may be one: where other text begins like calls, only known ones are."""
        assert self._format
        has_marker = all(MARKER.search(start) or "<" in start for start in self._format.starts)
        return (has_marker and bool(self._held)) or name in self._config.tools

    def _arguments_of(self, call: ToolCallParser, name: str) -> _NamedCall | _TaggedCall:
        assert self._format
        if self._format.arguments is None:
            return _NamedCall(call)
        types = self._config.types.get(name, {})
        return _TaggedCall(call, TaggedReader(self._format, types))

    def _read_tagged(self, call: ToolCallParser, reader: TaggedReader) -> list[Delta]:
        text, self._text = self._text, ""
        self._call += call.arguments(reader.push(text, complete=self._complete))
        if reader.rest is None:
            return []
        self._text = reader.rest
        return self._end_call(call)

    def _read_arguments(self, call: ToolCallParser, end: ValueScanner) -> list[Delta]:
        n = end.push(self._text)
        value, self._text = self._text[:n], "" if n is None else self._text[n:]
        self._call += call.arguments(value)
        return [] if n is None else self._end_call(call)

    def _read_object(self, call: ToolCallParser, stream: ObjectStream) -> list[Delta]:
        text, self._text = self._text, ""
        self._held.add(text)
        for member in stream.push(text):
            self._call += call.take(member)
            if call.unknown:
                return self._reject_object()
        rest = stream.rest
        if not call.begun:
            return self._reject_object() if rest is not None else []
        self._held.release()
        if rest is None:
            return []
        self._text = rest
        return self._end_call(call)

    def _read_code(self, pieces: list[str]) -> list[Delta] | None:
        if not pieces:
            if self._text.lstrip().startswith("{"):
                return self._begin_object()
            if not self._text.strip() and not self._complete and len(self._text) <= _MAX_SPACE_CHARACTERS:
                return None
        pieces.append(self._text)
        self._text = ""
        return []

    def _finish_code(self, code: str) -> list[Delta]:
        called = parse_python_call(code, self._config.tools)
        if called is None:
            return self._content(code)
        name, arguments = called
        call = self._new_call()
        self._call = [*call.begin(name, None), *call.arguments(json.dumps(arguments, ensure_ascii=False))]
        return self._end_call(call)

    def _read_generic(self) -> list[Delta] | None:
        head = _GENERIC_HEAD.match(self._text)
        if head is None:
            begins = self._text.lstrip()[:1] in {"", "{"} and len(self._text) < _MAX_HEADER_CHARACTERS
            return None if begins else self._leave_calls()
        self._text = self._text[head.end() :]
        if head[1] == "response":
            self._mode = ResponseStream()
        else:
            self._text = self._text.removeprefix("[")
            self._mode = _Mode.CALLS
        return []

    def _read_response(self, response: ResponseStream) -> list[Delta]:
        content, self._text = response.push(self._text), ""
        return [Content(content)] if content else []

    # Calls

    def _begin_calls(self, marker: str) -> None:
        self._held.add_marker(self._space, marker)
        self._space, self._mode = "", _Mode.CALLS

    def _begin_object(self) -> list[Delta]:
        self._held.begin_object()
        self._mode = _ObjectCall(self._new_call())
        return []

    def _new_call(self) -> ToolCallParser:
        assert self._format
        known = self._config.tools if self._format.json_only else None
        return ToolCallParser(
            self.n_calls, known, self._format.id_characters, name_is_key=self._format.name_is_key
        )

    def _end_call(self, call: ToolCallParser) -> list[Delta]:
        """The call, now that it is whole; nothing if the client wants one call and has had it."""
        deltas = [self._with_own_id(each) for each in call.whole([*self._call, *call.finish()])]
        self._call = []
        self._mode = _Mode.CALLS
        self._space = ""
        self.n_calls += 1
        return [] if self._config.one_call and self.n_calls > 1 else deltas

    def _with_own_id(self, delta: Delta) -> Delta:
        """Models write the same ids again, by which clients would take two calls for one."""
        if isinstance(delta, ToolCallStart):
            if delta.id in self._used_ids:
                assert self._format
                delta = replace(delta, id=new_id(self._format.id_characters))
            self._used_ids.add(delta.id)
        return delta

    def _leave_calls(self) -> list[Delta]:
        if self._held:
            return self._reject_call()
        self._mode, self._skips_space = _Mode.CONTENT, True
        return []

    def _reject_call(self) -> list[Delta]:
        """The marker that began this call is content; what follows it is read again."""
        content, again = self._held.reject(self._text)
        self._call = []
        self._text = ""
        self._later.put_back(again)
        self._mode = _Mode.CONTENT
        self._skips_space, self._has_content = False, True
        return self._content(content)

    def _reject_object(self) -> list[Delta]:
        self._n_rejected_objects += 1
        return self._reject_call()

    def _is_unfinished_call(self) -> bool:
        reads_no_name = isinstance(self._mode, _ObjectCall) and not self._mode.call.begun
        return bool(self._held) and (self._mode is _Mode.CALLS or reads_no_name)

    def _is_separator(self, text: str) -> bool:
        """Whether `text`, at the end of an answer, is what may follow a call."""
        if not text.strip():
            return self._mode is _Mode.CALLS or not text
        if self._mode is not _Mode.CALLS or not self.n_calls or self._format is None:
            return False
        return self._format.is_generic or partial_marker_length(text, self._format.ends) == len(text)

    # Text

    def _call_starts(self) -> tuple[str, ...]:
        return self._format.starts if self._format and self._finds_calls else ()

    @property
    def _finds_calls(self) -> bool:
        return self._n_rejected_objects < _MAX_REJECTED_OBJECTS

    def _markers_in_content(self) -> tuple[str, ...]:
        reasoning = self._config.reasoning
        markers = [*self._config.ignored_markers]
        if reasoning and (reasoning.interleaved or self._may_begin_with(reasoning.start)):
            markers.append(reasoning.start)
        markers += self._call_starts()
        if self._format and self._format.code_tag and self._finds_calls:
            markers.append(self._format.code_tag)
        return tuple(markers)

    def _may_begin_with(self, marker: str) -> bool:
        text = self._text.lstrip()
        return not self._has_content and (text.startswith(marker) or marker.startswith(text))

    def _content(self, text: str) -> list[Delta]:
        """`text` as content; white space at its end waits if calls may follow."""
        text = self._space + text
        kept, self._space = _split_space(text) if self._format else (text, "")
        self._has_content = self._has_content or bool(kept.strip())
        return [Content(kept)] if kept else []

    def _skip_space(self) -> None:
        if self._skips_space:
            self._text = self._text.lstrip()
            self._skips_space = not self._text

    def _skip_separators(self) -> None:
        """Up to what may begin a call, which may begin like a separator."""
        assert self._format
        while n := self._separator_length(self._text):
            self._held.add_separators(self._text[:n])
            self._text = self._text[n:]

    def _separator_length(self, text: str) -> int:
        assert self._format
        starts = self._format.starts
        may_start = not self._complete and partial_marker_length(text, starts) == len(text)
        if not text or text.startswith(starts) or may_start:
            return 0
        if text[0].isspace():
            return 1
        return max((len(each) for each in self._format.ends if text.startswith(each)), default=0)


def _split_space(text: str) -> tuple[str, str]:
    """`text` without the white space at its end, or with all but the last of it; and that space."""
    kept = max(len(text.rstrip()), len(text) - _MAX_SPACE_CHARACTERS)
    return text[:kept], text[kept:]
