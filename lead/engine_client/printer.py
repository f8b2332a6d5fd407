"""Prints the text as it is generated, and after each answer a line with its times."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from lead.engine.events import Committed
from lead.engine_client.answer_stats import AnswerStats, seconds_between
from lead.engine_client.assembler import Assembler
from lead.engine_client.front_vocabulary import FrontVocabulary
from lead.engine_client.sequences import LiveSequence
from lead.engine_client.terminal_writer import TerminalWriter
from lead.settings.choices import Print
from shared.diagnostics.findings import count
from shared.terminal import one_line, sanitize, wants_color

ACCEPTED = "\x1b[32m"
_REJECTED = "\x1b[31m"
_TIMES = "\x1b[2m"
RESET = "\x1b[0m"
_MAX_HELD_CHARACTERS: Final = 1 << 16
"""The maximum number of characters of an answer that are held while another answer is shown."""
_MAX_WAITING: Final = 64
"""The maximum number of answers that wait while an answer is shown; with more, the next answer is shown."""
_CUT = "…\n"


@dataclass(slots=True)
class _PrintedAnswer:
    """One answer. held: text that waits to be shown, of `n_held` characters. at_line_start: its last line is
    complete.
    """

    assembler: Assembler
    held: list[str] = field(default_factory=list)
    n_held: int = 0
    at_line_start: bool = True
    ended: bool = False


class Printer:
    """Prints sequences; an observer of `Sequences`.

    If several sequences run, one is shown as it grows. The others are shown after it, each as a whole, in the
    order in which they began. For private sequences, only the line with the times is printed.
    """

    def __init__(self, vocabulary: FrontVocabulary, mode: Print, writer: TerminalWriter) -> None:
        self._vocabulary = vocabulary
        self._mode = mode
        self._color = wants_color(writer.out, os.environ)
        self._writer = writer
        self._answers: dict[str, _PrintedAnswer] = {}
        """The answers in progress by sequence; the first one is shown."""

    def on_step(self, sequence: LiveSequence, step: Committed) -> None:
        if self._mode == "none" or sequence.private:
            return
        answer = self._answer(sequence)
        for text, color in self._parts(answer.assembler, step):
            self._add(sequence.id, answer, text, color)
        if len(self._answers) > 1 + _MAX_WAITING:
            self._give_way()

    def on_end(self, sequence: LiveSequence) -> None:
        if self._mode == "none" or sequence.started_at is None:
            return
        answer = self._answer(sequence)
        line_break = "" if answer.at_line_start else "\n"
        self._add(sequence.id, answer, f"{line_break}{times_of(sequence)}\n", _TIMES)
        answer.ended = True
        if next(iter(self._answers)) == sequence.id:
            self._show_next()

    def _answer(self, sequence: LiveSequence) -> _PrintedAnswer:
        if (found := self._answers.get(sequence.id)) is None:
            found = self._answers[sequence.id] = _PrintedAnswer(Assembler(self._vocabulary.piece, []))
        return found

    def _parts(self, assembler: Assembler, step: Committed) -> Iterable[tuple[str, str]]:
        """Yield the text that a step adds, in parts of one color."""
        tokens = assembler.push(step)
        yield "".join(token.text for token in tokens if token.source), ACCEPTED
        if self._mode == "all":
            rejected = b"".join(self._vocabulary.piece(token) for token in step.rejected)
            yield rejected.decode("utf-8", "replace"), _REJECTED
        yield "".join(token.text for token in tokens if not token.source), ""

    def _add(self, sequence: str, answer: _PrintedAnswer, text: str, color: str) -> None:
        """Show text of an answer now, or when it is the answer's turn."""
        if not (shown := sanitize(text)):
            return
        painted = self._painted(shown, color)
        if next(iter(self._answers)) == sequence:
            self._writer.put(painted)
        elif answer.n_held < _MAX_HELD_CHARACTERS or color == _TIMES:
            answer.held.append(painted)
            answer.n_held += len(painted)
        else:
            return
        answer.at_line_start = shown.endswith("\n")

    def _painted(self, text: str, color: str) -> str:
        """Return `text` with each line colored by itself, because the log may come between lines."""
        if not (color and self._color):
            return text
        return "\n".join(f"{color}{line}{RESET}" if line else "" for line in text.split("\n"))

    def _show_next(self) -> None:
        """End the shown answer; show the held text of the next ones, up to the first unfinished one."""
        self._answers.pop(next(iter(self._answers)))
        while self._answers:
            following = next(iter(self._answers.values()))
            self._writer.put("".join(following.held))
            following.held.clear()
            following.n_held = 0
            if not following.ended:
                return
            self._answers.pop(next(iter(self._answers)))

    def _give_way(self) -> None:
        """Put the answer that is shown behind all others."""
        name = next(iter(self._answers))
        answer = self._answers[name]
        if not answer.at_line_start:
            self._add(name, answer, _CUT, "")
        self._show_next()
        self._answers[name] = answer


def times_of(sequence: LiveSequence) -> str:
    """Return a line with the times of an answer in seconds. The rounded parts add up to the whole."""
    stats = AnswerStats.of(sequence, sequence.n_generated)
    parts = [count(stats.n_generated, "token")]
    if (rate := stats.tokens_per_second) is not None:
        parts.append(f"{rate:.1f} tokens/s")
    drafts = f"drafted {stats.n_drafted}, accepted {stats.n_accepted}" if stats.n_drafted else "no drafts"
    waiting = round(seconds_between(sequence.created_at, sequence.started_at), 2)
    prompt, generating = round(stats.prompt_seconds, 2), round(stats.generation_seconds, 2)
    first = f"first token {waiting + prompt:.2f} s"
    if waiting:
        first += f" (waiting {waiting:.2f}, prompt {prompt:.2f})"
    whole = f"{first} + {generating:.2f} = {waiting + prompt + generating:.2f} s"
    failure = f"; failed: {one_line(str(sequence.failure))}" if sequence.failure else ""
    return f"[{', '.join([*parts, drafts])}; {whole}{failure}]"
