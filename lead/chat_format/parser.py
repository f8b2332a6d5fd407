"""Splits the text of an answer into reasoning, content and tool calls, incrementally.

Text that may become a marker is held back until this is decided. A call is held back until its tool is known.
Text that began like a call but is not a call is content. The result does not depend on how the text is cut
into pieces.

The work is linear in the length of any answer: text is read through a window, and the text that is held back
is bounded. So no client can make the parser slow.
"""

from dataclasses import dataclass
from enum import Enum, auto

from lead.chat_format.calls import AnyCallReader, call_support
from lead.chat_format.deltas import Content, Delta, Reasoning, merge_deltas
from lead.chat_format.markers import MAX_SPACE_CHARACTERS, Window
from lead.chat_format.output_format import ParserConfig


class _Mode(Enum):
    """The part of the answer that is being read, if reading it needs no state of its own."""

    CONTENT = auto()
    REASONING = auto()
    CALLS = auto()


@dataclass(frozen=True, slots=True)
class _MaybeCall:
    """Text inside reasoning that begins like a call. It is a call if the reasoning never ends."""

    pieces: list[str]


class OutputParser:
    """Splits the text of an answer, as it arrives, into reasoning, content and tool calls.

    This is a state machine over the window's text. In each mode, `_read_step` consumes some of the text, or
    returns None if it needs more. The modes change as follows:

        CONTENT    → REASONING at the start marker of reasoning, → CALLS at the marker of a call
        REASONING  → CONTENT or CALLS at the end marker of reasoning, → _MaybeCall at the marker of a call
        _MaybeCall → CONTENT or CALLS at the end marker of reasoning; without it, → CALLS at the text's end
        CALLS      → CONTENT when the reader of calls has become inactive
    """

    def __init__(self, config: ParserConfig) -> None:
        self._config = config
        self._reasoning = config.reasoning  # markers
        self._pending: list[Delta] = [Content(config.prefix)] if config.prefix else []  # for the first `push`
        self._window = Window(config.unfinished)
        self._space = ""  # white space that is held back, and dropped if a marker follows
        self._has_content = False  # other than white space
        self._calls: AnyCallReader | None = None
        if config.tool_format and (support := call_support()):
            self._calls = support.reader(config.tool_format, config, self._window)
        self._mode: _Mode | _MaybeCall = self._without_reasoning()
        if config.reasoning and config.in_reasoning:
            self._mode = _Mode.REASONING
        # whether white space at the beginning of the part is dropped
        self._skips_space = self._mode is _Mode.REASONING and not config.continues_reasoning

    @property
    def n_calls(self) -> int:
        """The number of tool calls so far."""
        return self._calls.n_calls if self._calls else 0

    def push(self, text: str) -> list[Delta]:
        """Add `text`; returns the deltas that are final now."""
        self._window.push(text)
        return merge_deltas(self._read())

    def finish(self, *, is_cut: bool = False) -> list[Delta]:
        """End the text; return the deltas that were held back. An incomplete call is left out.

        is_cut: the text was cut off, and the model would have continued.
        """
        self._window.finished = True
        deltas = self._read()
        if isinstance(self._mode, _MaybeCall):
            deltas += self._leave_draft(self._mode.pieces)
        while self._mode is _Mode.CALLS:
            assert self._calls
            deltas += self._after_calls(self._calls.finish(is_cut=is_cut))
            if self._mode is _Mode.CALLS:
                return merge_deltas(deltas)
            deltas += self._read()
        deltas += self._content(self._window.text)
        if self._space and not self.n_calls and self._mode is _Mode.CONTENT:
            deltas.append(Content(self._space))
        return merge_deltas(deltas)

    def _read(self) -> list[Delta]:
        deltas, self._pending = self._pending, []
        while True:
            step = self._read_step() if self._window.text else None
            if step is not None:
                deltas += step
            elif not self._window.grow():
                return deltas

    def _read_step(self) -> list[Delta] | None:
        """Read some of the text, and return its deltas; None if more text is needed."""
        match self._mode:
            case _Mode.CONTENT:
                return self._read_content()
            case _Mode.REASONING:
                return self._read_reasoning()
            case _Mode.CALLS:
                return self._read_calls()
            case _MaybeCall(pieces):
                return self._read_draft(pieces)

    def _without_reasoning(self) -> _Mode:
        """Return the mode at the beginning of an answer without reasoning, or after its reasoning."""
        if self._calls:
            self._calls.begin_answer()
        return _Mode.CALLS if self._calls and self._calls.active else _Mode.CONTENT

    def _read_reasoning(self) -> list[Delta] | None:
        assert self._reasoning
        self._skip_space()
        end = self._reasoning.end
        text, marker = self._window.split((end, *self._call_starts()))
        kept, space = _split_space(self._space + text)
        self._space = "" if marker else space
        if marker == end:
            self._mode, self._skips_space = self._without_reasoning(), True
        elif marker:
            self._mode, self._space = _MaybeCall([space + marker]), ""
        elif not kept:
            return None
        return [Reasoning(kept)] if kept else []

    def _read_draft(self, pieces: list[str]) -> list[Delta] | None:
        assert self._reasoning
        end = self._reasoning.end
        text, marker = self._window.split((end,))
        pieces.append(text)
        if not marker:
            return [] if text else None
        kept, self._space = _split_space("".join(pieces))
        self._mode, self._skips_space, self._space = self._without_reasoning(), True, ""
        return [Reasoning(kept)]

    def _leave_draft(self, pieces: list[str]) -> list[Delta]:
        """Leave reasoning, which never ended: read the text that began like a call as a call."""
        self._mode, self._window.text = self._without_reasoning(), "".join([*pieces, self._window.text])
        return self._read()

    def _read_content(self) -> list[Delta] | None:
        self._skip_space()
        if self._calls and self._calls.begins_with_object and not self._has_content:
            text = self._window.text.lstrip()
            if not text and len(self._window.text) <= MAX_SPACE_CHARACTERS:
                return None
            if text[:1] == "{":
                return self._begin_calls("")
        text, marker = self._window.split(self._markers_in_content())
        if not text and not marker:
            return None
        deltas = self._content(text)
        if marker and self._reasoning and marker == self._reasoning.start:
            self._mode, self._skips_space, self._space = _Mode.REASONING, True, ""
        elif marker in self._call_starts():
            self._begin_calls(marker)
        return deltas

    # Calls

    def _begin_calls(self, marker: str) -> list[Delta]:
        assert self._calls
        self._calls.begin(marker, self._space)
        self._mode = _Mode.CALLS
        if marker:
            self._space = ""
        return []

    def _read_calls(self) -> list[Delta] | None:
        assert self._calls
        n_before = self._calls.n_calls
        deltas = self._calls.read()
        if self._calls.n_calls > n_before:
            self._space = ""
        return None if deltas is None else self._after_calls(deltas)

    def _after_calls(self, deltas: list[Delta]) -> list[Delta]:
        """Return the deltas from the reader of calls. If it is inactive now, its rejected text follows as
        content.
        """
        assert self._calls
        if self._calls.active:
            return deltas
        self._mode, self._skips_space = _Mode.CONTENT, not self._calls.rejected
        self._has_content = self._has_content or bool(self._calls.rejected)
        return [*deltas, *self._content(self._calls.rejected)]

    def _call_starts(self) -> tuple[str, ...]:
        return self._calls.starts if self._calls else ()

    # Text

    def _markers_in_content(self) -> tuple[str, ...]:
        markers = (*self._config.ignored_markers, *self._call_starts())
        if self._reasoning and (self._reasoning.interleaved or self._may_begin_with(self._reasoning.start)):
            return (*markers, self._reasoning.start)
        return markers

    def _may_begin_with(self, marker: str) -> bool:
        text = self._window.text.lstrip()
        return not self._has_content and (text.startswith(marker) or marker.startswith(text))

    def _content(self, text: str) -> list[Delta]:
        """Return `text` as content; white space at its end is held back if calls may follow."""
        text = self._space + text
        kept, self._space = _split_space(text) if self._calls else (text, "")
        self._has_content = self._has_content or bool(kept.strip())
        return [Content(kept)] if kept else []

    def _skip_space(self) -> None:
        if self._skips_space:
            self._window.text = self._window.text.lstrip()
            self._skips_space = not self._window.text


def _split_space(text: str) -> tuple[str, str]:
    """Split off white space at the end of `text`, at most MAX_SPACE_CHARACTERS; return both parts."""
    kept = max(len(text.rstrip()), len(text) - MAX_SPACE_CHARACTERS)
    return text[:kept], text[kept:]
