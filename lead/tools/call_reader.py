"""Reads tool calls while an answer is generated.

A call is held back until it is complete, because text that began like a call may be content. The text that is
held back without being a call is bounded, and so is the number of objects that are read again because they
are not calls.
"""

import json
import re
from dataclasses import dataclass, field
from enum import Enum, auto

from lead.chat_format.deltas import Content, Delta, ToolCallArguments, ToolCallStart
from lead.chat_format.markers import MARKER, MAX_SPACE_CHARACTERS, Window, partial_marker_length
from lead.chat_format.output_format import ParserConfig
from lead.tools.call_format import CallFormat
from lead.tools.json_stream import ResponseStream, ValueScanner
from lead.tools.tagged_reader import TaggedReader
from lead.tools.tool_calls import (
    CALL_KEYS,
    HeldCall,
    WrittenCall,
    call_in,
    escaped,
    new_id,
    parse_python_call,
)

_MAX_HEADER_CHARACTERS = 300
"""The longest text before the arguments of a call; text with a longer beginning is not a call."""
_MAX_SEPARATOR_CHARACTERS = 100
"""The longest separators between a marker and its call, in characters; after longer ones, no call begins."""
_MAX_REJECTED_OBJECTS = 16
"""After this many rejected objects, calls are no longer searched for: each object may be as long as the
answer, and is read twice.
"""
_MAX_KEY_CHARACTERS = 2048
"""The longest beginning of an object up to its first key, which may be a tool's name in escapes."""
_FIRST_KEY = re.compile(r'\s*+\{\s*+"((?:[^"\\]|\\.)*+)"')
_BEGUN_OBJECT = re.compile(r'\s*+\{\s*+(?:"(?:[^"\\]|\\.)*+\\?)?')
_GENERIC_HEAD = re.compile(r'\s*\{\s*"(response|tool_calls)"\s*:\s*(?=\S)')


class _Expected(Enum):
    """The part that comes next, if reading it needs no state of its own."""

    OUTSIDE = auto()  # content, which the parser reads
    BETWEEN = auto()  # between calls, or before the first
    GENERIC = auto()  # a generic answer before its first value


@dataclass(slots=True)
class _JsonCall:
    """A call that is a JSON object, or whose arguments are a JSON object.

    name, id: set if they came before the object. head: the beginning of the text, until the text is known
    to be an object.
    """

    name: str = ""
    id: str | None = None
    head: str = ""
    is_object: bool = False
    pieces: list[str] = field(default_factory=list)
    end: ValueScanner = field(default_factory=ValueScanner)


@dataclass(frozen=True, slots=True)
class _TaggedCall:
    """A call whose arguments are written one by one."""

    name: str
    id: str | None
    reader: TaggedReader


@dataclass(frozen=True, slots=True)
class _Code:
    pieces: list[str] = field(default_factory=list)


class CallReader:
    """Reads calls from the window that it shares with the parser of the answer."""

    def __init__(self, calls: CallFormat, config: ParserConfig, window: Window) -> None:
        self._format = calls
        self._config = config
        self._window = window
        self._held = HeldCall()
        self._n_rejected_objects = 0
        self._used_ids = set(config.used_ids)
        self.n_calls = 0
        """The number of tool calls so far."""
        self.rejected = ""
        """When the reader is no longer active: the text that began like a call but is content."""
        self._state: _Expected | _JsonCall | _TaggedCall | _Code | ResponseStream = _Expected.OUTSIDE
        self.begin_answer()

    @property
    def active(self) -> bool:
        """True if this reader must read the text that comes next."""
        return self._state is not _Expected.OUTSIDE

    @property
    def starts(self) -> tuple[str, ...]:
        """The texts that may begin a call."""
        if self._n_rejected_objects >= _MAX_REJECTED_OBJECTS:
            return ()
        return (*self._format.starts, *filter(None, [self._format.code_tag]))

    @property
    def begins_with_object(self) -> bool:
        """True if an answer that begins with a JSON object may be a call."""
        return self._format.json_only

    def begin_answer(self) -> None:
        """Reset at the beginning of an answer, or after its reasoning."""
        self._state = _Expected.GENERIC if self._format.is_generic else _Expected.OUTSIDE

    def begin(self, marker: str, space: str = "") -> None:
        """Start reading a call after `marker`; `space` is the white space before it.

        An empty marker: the call begins with a JSON object.
        """
        if not marker:
            self._begin_object()
        elif marker == self._format.code_tag:
            self._state = _Code()
        else:
            self._held.add_marker(space, marker)
            self._state = _Expected.BETWEEN

    def read(self) -> list[Delta] | None:
        """Read some of the text, and return its deltas; None if more text is needed."""
        match self._state:
            case _JsonCall() as call:
                return self._read_json(call)
            case _TaggedCall() as call:
                return self._read_tagged(call)
            case _Code(pieces):
                return self._read_code(pieces)
            case ResponseStream() as response:
                return self._read_response(response)
            case _Expected.GENERIC:
                return self._read_generic()
        return self._read_between_calls()

    def finish(self, *, is_cut: bool) -> list[Delta]:
        """End the text; return the remaining deltas.

        is_cut: the model would have continued; an incomplete call is then left out.
        """
        if self._is_unfinished_call():
            return [] if is_cut else self._reject_call()
        match self._state:
            case _Code(pieces) if pieces and not is_cut:
                return self._finish_code("".join(pieces))
            case _TaggedCall() as call if call.reader.is_whole and not is_cut:
                return self._end_tagged(call)
            case _Expected() if not self._is_separator(self._text):
                text, self._text = self._text, ""
                self._leave(text)
        return []

    @property
    def _text(self) -> str:
        return self._window.text

    @_text.setter
    def _text(self, text: str) -> None:
        self._window.text = text

    def _read_between_calls(self) -> list[Delta] | None:
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
        self.begin(marker)
        self._text = self._text[len(marker) :]
        return []

    def _is_partial_marker(self) -> bool:
        """Return whether the text is the beginning of a marker.

        At the end of an answer, only markers that may follow a call count.
        """
        if self._window.complete:
            return not self._held and self._is_separator(self._text)
        markers = (*self._format.ends, *self._format.starts)
        return partial_marker_length(self._text, markers) == len(self._text)

    def _read_header(self, header: re.Pattern[str]) -> list[Delta] | None:
        end = self._format.header_length(self._text[:_MAX_HEADER_CHARACTERS])
        if end < 0:
            return None if len(self._text) < _MAX_HEADER_CHARACTERS else self._reject_call()
        match = header.fullmatch(" ".join(self._text[:end].split()))
        if match is None or not self._is_known(match["name"]):
            return self._reject_call()
        self._text = self._text[end:]
        self._held.release()
        name, call_id = match["name"], match.groupdict().get("id")
        if self._format.arguments is None:
            self._state = _JsonCall(name, call_id)
        else:
            self._state = _TaggedCall(
                name, call_id, TaggedReader(self._format, self._config.types.get(name, {}))
            )
        return []

    def _is_known(self, name: str) -> bool:
        """Return whether a call of the tool `name` counts as a call.

        If ordinary text may begin like a call, only calls of the request's tools count.
        """
        has_marker = all(MARKER.search(start) or "<" in start for start in self._format.starts)
        return (has_marker and bool(self._held)) or name in self._config.tools

    def _read_tagged(self, call: _TaggedCall) -> list[Delta]:
        text, self._text = self._text, ""
        call.reader.push(text, complete=self._window.complete)
        if call.reader.rest is None:
            return []
        self._text = call.reader.rest
        return self._end_tagged(call)

    def _end_tagged(self, call: _TaggedCall) -> list[Delta]:
        arguments = json.dumps(call.reader.values, ensure_ascii=False)
        return self._end_call(WrittenCall(call.name, arguments, call.id))

    def _read_json(self, call: _JsonCall) -> list[Delta]:
        n = call.end.push(self._text)
        text, self._text = self._text[:n], "" if n is None else self._text[n:]
        call.pieces.append(text)
        if call.name:
            return [] if n is None else self._end_call(WrittenCall(call.name, "".join(call.pieces), call.id))
        self._held.add(text)
        if not call.is_object:
            call.head += text
            key = _FIRST_KEY.match(call.head)
            call.is_object = key is not None
            begins = _BEGUN_OBJECT.fullmatch(call.head) and len(call.head) <= _MAX_KEY_CHARACTERS
            is_other = key and self._format.json_only and key[1] not in CALL_KEYS
            if is_other or not (key or begins):
                return self._reject_object()
        if n is None:
            return []
        written = self._written(call)
        return self._end_call(written) if written else self._reject_object()

    def _written(self, call: _JsonCall) -> WrittenCall | None:
        """Return the call in the object, which may be incomplete; None: it is not a call, or not yet."""
        written = call_in("".join(call.pieces), name_is_key=self._format.name_is_key)
        is_unknown = self._format.json_only and written and written.name not in self._config.tools
        return None if is_unknown else written

    def _read_code(self, pieces: list[str]) -> list[Delta] | None:
        if not pieces:
            if self._text.lstrip().startswith("{"):
                return self._begin_object()
            if (
                not self._text.strip()
                and not self._window.complete
                and len(self._text) <= MAX_SPACE_CHARACTERS
            ):
                return None
        pieces.append(self._text)
        self._text = ""
        return []

    def _finish_code(self, code: str) -> list[Delta]:
        called = parse_python_call(code, self._config.tools)
        if called is None:
            return self._leave(code)
        name, arguments = called
        return self._end_call(WrittenCall(name, json.dumps(arguments, ensure_ascii=False)))

    def _read_generic(self) -> list[Delta] | None:
        head = _GENERIC_HEAD.match(self._text)
        if head is None:
            begins = self._text.lstrip()[:1] in {"", "{"} and len(self._text) < _MAX_HEADER_CHARACTERS
            return None if begins else self._leave_calls()
        self._text = self._text[head.end() :]
        if head[1] == "response":
            self._state = ResponseStream()
        else:
            self._text = self._text.removeprefix("[")
            self._state = _Expected.BETWEEN
        return []

    def _read_response(self, response: ResponseStream) -> list[Delta]:
        content, self._text = response.push(self._text), ""
        return [Content(content)] if content else []

    # Calls

    def _begin_object(self) -> list[Delta]:
        self._held.begin_object()
        self._state = _JsonCall()
        return []

    def _end_call(self, call: WrittenCall) -> list[Delta]:
        """Return the deltas of a complete call; none if the client wants only one call and already has it."""
        self._held.release()
        self._state = _Expected.BETWEEN
        index, self.n_calls = self.n_calls, self.n_calls + 1
        if self._config.one_call and index:
            return []
        call_id = call.id
        if not call_id or call_id in self._used_ids:  # models write the same ids again
            call_id = new_id(self._format.id_characters)
        self._used_ids.add(call_id)
        return [
            ToolCallStart(index, call_id, call.name),
            ToolCallArguments(index, escaped(call.arguments or "{}")),
        ]

    def _leave(self, rejected: str = "") -> list[Delta]:
        self._state, self.rejected = _Expected.OUTSIDE, rejected
        return []

    def _leave_calls(self) -> list[Delta]:
        return self._reject_call() if self._held else self._leave()

    def _reject_call(self) -> list[Delta]:
        """Treat the marker that began this call as content, and read the text after it again."""
        content, again = self._held.reject(self._text)
        self._window.read_again(again)
        return self._leave(content)

    def _reject_object(self) -> list[Delta]:
        self._n_rejected_objects += 1
        return self._reject_call()

    def _is_unfinished_call(self) -> bool:
        if isinstance(self._state, _JsonCall) and not self._state.name:
            return self._written(self._state) is None
        return bool(self._held) and self._state is _Expected.BETWEEN

    def _is_separator(self, text: str) -> bool:
        """Return whether `text`, at the end of an answer, may follow a call."""
        if not text.strip():
            return self._state is _Expected.BETWEEN or not text
        if self._state is not _Expected.BETWEEN or not self.n_calls:
            return False
        return self._format.is_generic or partial_marker_length(text, self._format.ends) == len(text)

    def _skip_separators(self) -> None:
        """Skip separators, but no text that may be the beginning of a call."""
        while n := self._separator_length(self._text):
            self._held.add_separators(self._text[:n])
            self._text = self._text[n:]

    def _separator_length(self, text: str) -> int:
        starts = self._format.starts
        may_start = not self._window.complete and partial_marker_length(text, starts) == len(text)
        if not text or text.startswith(starts) or may_start:
            return 0
        if text[0].isspace():
            return 1
        return max((len(each) for each in self._format.ends if text.startswith(each)), default=0)
