"""Collects an answer from its chunks as they arrive: text, source of each token, speed.

This module knows the shapes in `wire`, but nothing of HTTP, the screen or the conversation. Callers pass in
the clock.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile

from chat.wire import Chunk, Speculation, Timings, Usage

WITHOUT_SPECULATION = {"speculative.n_max": 0}
"""A request field of llama-server, which a lead also supports."""

_N_SHOWN = 30


@dataclass(frozen=True, slots=True)
class Piece:
    """A token, or the text of a chunk.

    `source`: the drafter, or None if the target generated the text without a draft. `is_reasoning`: the text
    is shown, but is not part of the answer. `more`: another piece of the same chunk follows.
    """

    text: str
    source: str | None = None
    is_reasoning: bool = False
    more: bool = False


@dataclass(frozen=True, slots=True)
class GenerationStats:
    """The numbers of tokens and draft tokens in answers, and the `seconds` of generating the answers.

    `n_untimed`: the number of these tokens that are in answers of unknown duration.
    """

    n_tokens: int = 0
    seconds: float = 0.0
    n_drafted: int = 0
    n_accepted: int = 0
    n_untimed: int = 0

    @property
    def tokens_per_second(self) -> float | None:
        return (self.n_tokens - self.n_untimed) / self.seconds if self.seconds > 0 else None

    @property
    def accepted_share(self) -> float | None:
        return self.n_accepted / self.n_drafted if self.n_drafted else None

    def __add__(self, other: "GenerationStats") -> "GenerationStats":
        return GenerationStats(
            self.n_tokens + other.n_tokens,
            self.seconds + other.seconds,
            self.n_drafted + other.n_drafted,
            self.n_accepted + other.n_accepted,
            self.n_untimed + other.n_untimed,
        )


class ChatAnswer:
    """An answer, filled from the chunks of a stream. It can be read even after an interruption."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.text = ""
        self.finish_reason: str | None = None
        self.seed: int | None = None
        self.timings: Timings | None = None
        self.usage: Usage | None = None
        self.n_accepted_by_source: Counter[str] = Counter()
        self._clock = clock
        self._first = self._last = 0.0
        self._n_first = self._n_read = self._n_drafted = self._n_accepted = 0

    def read(self, chunk: Chunk) -> list[Piece]:
        """Add a chunk and return its pieces. Their texts, put together, are the chunk's text."""
        self.timings = chunk.timings or self.timings
        self.usage = chunk.usage or self.usage
        self.seed = self.seed if chunk.seed is None else chunk.seed
        if chunk.speculation:
            self._n_drafted += chunk.speculation.n_drafted
            self._n_accepted += chunk.speculation.n_accepted
        if not chunk.choices:
            return []
        self.finish_reason = chunk.choices[0].finish_reason or self.finish_reason
        delta = chunk.choices[0].delta
        pieces = [
            *_pieces(delta.thought, chunk.speculation, is_reasoning=True),
            *_pieces(delta.content or "", chunk.speculation, is_reasoning=False),
        ]
        self._note(pieces)
        return [*(replace(piece, more=True) for piece in pieces[:-1]), *pieces[-1:]]

    @property
    def stats(self) -> GenerationStats:
        """The server's statistics if it has sent them, otherwise statistics measured here."""
        if self.timings is not None:
            return _server_stats(self.timings)
        n_tokens = self.usage.completion_tokens if self.usage else self._n_read
        return _stats(n_tokens, self._measured_seconds(), self._n_drafted, self._n_accepted)

    def _note(self, pieces: list[Piece]) -> None:
        if not pieces:
            return
        self._last = self._clock()
        if not self._n_read:
            self._first, self._n_first = self._last, len(pieces)
        self._n_read += len(pieces)
        self.text += "".join(piece.text for piece in pieces if not piece.is_reasoning)
        self.n_accepted_by_source.update(piece.source for piece in pieces if piece.source is not None)

    def _measured_seconds(self) -> float:
        # The first chunk's time includes the prompt's, so its tokens are assumed to take the average time.
        n_later = self._n_read - self._n_first
        return (self._last - self._first) * self._n_read / n_later if n_later else 0.0


def _server_stats(timings: Timings) -> GenerationStats:
    # Servers differ in whether `predicted_ms` covers the first token. So the rate that they report decides.
    rate = timings.predicted_per_second
    seconds = timings.predicted_n / rate if rate > 0 else 0.0
    return _stats(timings.predicted_n, seconds, timings.draft_n, timings.draft_n_accepted)


def _stats(n_tokens: int, seconds: float, n_drafted: int, n_accepted: int) -> GenerationStats:
    """Return the statistics of one answer. Without `seconds` its time is not known."""
    return GenerationStats(n_tokens, seconds, n_drafted, n_accepted, n_untimed=0 if seconds else n_tokens)


def _pieces(content: str, speculation: Speculation | None, *, is_reasoning: bool) -> list[Piece]:
    """Return the pieces of `content` by source; one piece if the tokens do not add up to the content."""
    if not content:
        return []
    if speculation is not None and "".join(token.text for token in speculation.tokens) == content:
        return [Piece(token.text, token.source, is_reasoning) for token in speculation.tokens]
    return [Piece(content, None, is_reasoning)]


class SessionStats:
    """Totals over the answers of a session."""

    def __init__(self) -> None:
        self.n_answers = 0
        self.total = GenerationStats()
        self.n_accepted_by_source: Counter[str] = Counter()
        self.last: ChatAnswer | None = None

    def add(self, answer: ChatAnswer) -> None:
        self.n_answers += 1
        self.total += answer.stats
        self.n_accepted_by_source += answer.n_accepted_by_source
        self.last = answer


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answers to a question with and without speculation: which was faster, and whether the texts are
    equal.
    """

    with_drafts: ChatAnswer
    without: ChatAnswer

    @property
    def ratio(self) -> float | None:
        """The speed with speculation over the speed without; None if either is unknown."""
        fast = self.with_drafts.stats.tokens_per_second
        slow = self.without.stats.tokens_per_second
        return fast / slow if fast and slow else None

    @property
    def verdict(self) -> str:
        return f"{self._speed} {self._texts}"

    @property
    def _speed(self) -> str:
        if self.without.stats.n_drafted:
            return "The server used drafts both times because it cannot switch them off for one request."
        if not self.with_drafts.stats.n_drafted:
            return "No drafts were used. No back is connected, or drafts were not worth verifying."
        if self.ratio is None:
            return "The answers are too short to measure their speed."
        return f"{self.ratio:.2f} times as fast with speculation."

    @property
    def _texts(self) -> str:
        one, other = self.with_drafts.text, self.without.text
        if one == other:
            return "The texts are identical."
        n_same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
        return (
            f"The texts DIFFER from character {n_same + 1} on: {one[n_same:][:_N_SHOWN]!r} with "
            f"speculation, {other[n_same:][:_N_SHOWN]!r} without. Check whether the server uses "
            "the seed, and whether it runs with --exact."
        )
