"""Everything chat writes goes through here: sanitised, coloured where a terminal shows it, plain elsewhere.

Answers go to one stream (stdout), all else to another (stderr), so that a redirected answer is nothing else.
`TerminalScreen` shows answers better, `JsonScreen` for programs.
"""

from collections.abc import Mapping
from typing import TextIO

from chat import report
from chat.answer import Answer
from chat.palette import Palette
from shared.terminal import sanitize, wants_colour

RESET = "\x1b[0m"
DIM = "\x1b[2m"
RED = "\x1b[31m"


class Screen:
    """The one place that writes; flushes at once, because an answer is read while it comes."""

    def __init__(
        self, out: TextIO, err: TextIO, environment: Mapping[str, str], *, sums_up: bool = False
    ) -> None:
        """`sums_up`: under each answer stands what it cost and what drafting did for it."""
        self._out = out
        self._err = err
        self._colour_out = wants_colour(out, environment)
        self._colour_err = wants_colour(err, environment)
        self._sums_up = sums_up
        self._palette = Palette()
        self._is_shown = True
        self._line_is_open = False

    def begin_answer(self, answer: Answer, *, shown: bool = True) -> None:
        """What `token` is given from now on belongs to `answer`; one that is not `shown` only counts."""
        del answer
        self._is_shown = shown

    def token(self, text: str, source: str | None, *, is_thought: bool = False, more: bool = False) -> None:
        """Show one token of an answer, in its source's colour; `more` came with it."""
        del more
        if not text or is_thought or not self._is_shown:
            return
        shown = sanitize(text)
        if source is not None and self._colour_out:
            shown = f"{self._palette.escape_of(source)}{shown}{RESET}"
        self._write(self._out, shown)
        self._line_is_open = not text.endswith("\n")

    def end_answer(self, *, empty: bool = False) -> None:
        """End the answer's last line; one for which nothing came is an empty line."""
        if self._line_is_open or (empty and self._is_shown):
            self._write(self._out, "\n")
        self._line_is_open = False

    def sum_up(self, answer: Answer) -> None:
        """Under an answer that has ended well or was stopped: figures, and the legend of its colours."""
        if not self._sums_up:
            return
        parts = [(part, DIM) for part in report.summary(answer)]
        parts += [
            (f"■ {source} {n}", self._palette.escape_of(source))
            for source, n in answer.n_accepted_by_source.items()
        ]
        for line in report.filled([text for text, _ in parts], self.columns):
            shown = [self._styled(*parts.pop(0)) for _ in line]
            self._write(self._err, report.SEPARATOR.join(shown) + "\n")

    def passage(self, text: str) -> None:
        """Show an answer of earlier times."""
        self.say(text)

    def say(self, text: str) -> None:
        """Show what a command found."""
        self._line(text, "")

    def note(self, text: str) -> None:
        """Show something that may be overlooked."""
        self._line(text, DIM)

    def error(self, text: str) -> None:
        self._line(text, RED)

    def sources(self, n_accepted: Mapping[str, int]) -> None:
        """The legend: each source in its colour, with the number of its accepted tokens."""
        for source, n in n_accepted.items():
            self._line(f"  {source}: {n} accepted", self._palette.escape_of(source))

    def _line(self, text: str, style: str) -> None:
        self.end_answer()
        self._write(self._err, f"{self._styled(report.wrapped(text, self.columns), style)}\n")

    @property
    def columns(self) -> int | None:
        """How long a line may be; None where nobody breaks it."""
        return None

    def _styled(self, text: str, style: str) -> str:
        shown = sanitize(text)
        return f"{style}{shown}{RESET}" if style and self._colour_err else shown

    @staticmethod
    def _write(stream: TextIO, text: str) -> None:
        stream.write(text)
        stream.flush()
