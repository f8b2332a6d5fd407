"""Statistics of generation, in tokens and seconds: of one answer, and of one HTTP request."""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple

from lead.engine_client.sequences import LiveSequence


class VerifiedDraft(NamedTuple):
    """How many tokens of one draft were verified, and how many of these were accepted."""

    n_drafted: int
    n_accepted: int


class SourceStats(NamedTuple):
    """The numbers of verified and accepted draft tokens of one source."""

    source: str
    n_drafted: int
    n_accepted: int


@dataclass(frozen=True, slots=True)
class AnswerStats:
    """The statistics of one answer, unfinished or complete.

    n_cached: prompt tokens found in the KV cache. n_generated: tokens that the client received, of which the
    first step gave `n_first`. prompt_seconds: from getting a slot to the end of the first step that gave
    tokens. generation_seconds: from the end of this step to the last token. sources: statistics of each draft
    source, sorted by name.
    """

    n_prompt: int
    n_cached: int
    n_generated: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    prompt_seconds: float = 0.0
    generation_seconds: float = 0.0
    sources: tuple[SourceStats, ...] = ()
    n_first: int = 0

    @classmethod
    def of(cls, sequence: LiveSequence, n_generated: int) -> "AnswerStats":
        """Return the statistics of a sequence so far, for the `n_generated` tokens that the client received.

        Draft tokens accepted after a stop string do not count as accepted.
        """
        return cls(
            n_prompt=sequence.n_prompt,
            n_cached=sequence.n_cached,
            n_generated=n_generated,
            n_drafted=sequence.n_drafted,
            n_accepted=min(sequence.n_accepted, n_generated),
            prompt_seconds=seconds_between(sequence.started_at, sequence.first_token_at),
            generation_seconds=seconds_between(sequence.first_token_at, sequence.last_token_at),
            sources=tuple(
                SourceStats(source, n_drafted, sequence.accepted_by[source])
                for source, n_drafted in sorted(sequence.drafted_by.items())
            ),
            n_first=min(sequence.n_first, n_generated),
        )

    @property
    def n_after_first(self) -> int:
        """The number of tokens after the first step, which took `generation_seconds`."""
        return self.n_generated - self.n_first

    @property
    def tokens_per_second(self) -> float | None:
        """The speed after the first step; None if no token came after it."""
        n, seconds = self.n_after_first, self.generation_seconds
        return n / seconds if n and seconds > 0 else None


def seconds_between(start: float | None, end: float | None) -> float:
    """Return the seconds from `start` to `end`; 0 if either is None."""
    return 0.0 if start is None or end is None else end - start


@dataclass(slots=True)
class RequestStats:
    """The statistics of one HTTP request, for its line in the log. `id` is also the header X-Request-Id.

    tokens_per_second: the speed of its slowest answer after the answer's first step. first_ms: the time from
    submission to the first token of any answer. Both are None if there were no tokens. is_forwarded: the
    process to which the request is forwarded logs it.
    """

    id: str
    n_sequences: int = 0
    n_prompt: int = 0
    n_cached: int = 0
    n_generated: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    tokens_per_second: float | None = None
    first_ms: int | None = None
    is_forwarded: bool = False

    def add(self, sequence: LiveSequence) -> None:
        """Add the numbers of a sequence that is not read any further."""
        self.n_sequences += 1
        self.n_prompt += sequence.n_prompt
        self.n_cached += sequence.n_cached
        self.n_generated += sequence.n_generated
        self.n_drafted += sequence.n_drafted
        self.n_accepted += sequence.n_accepted
        if sequence.first_token_at is not None:
            first_ms = round(1000 * (sequence.first_token_at - sequence.created_at))
            self.first_ms = min(first_ms, first_ms if self.first_ms is None else self.first_ms)
        if (rate := AnswerStats.of(sequence, sequence.n_generated).tokens_per_second) is not None:
            self.tokens_per_second = min(rate, self.tokens_per_second or rate)

    def __str__(self) -> str:
        """Return the end of the request's log line; empty if nothing was generated."""
        if not self.n_sequences:
            return ""
        text = f", prompt {self.n_prompt} tokens ({self.n_cached} cached), generated {self.n_generated}"
        if self.n_drafted:
            text += f", drafted {self.n_drafted}, accepted {self.n_accepted}"
        if self.tokens_per_second is not None:
            text += f", {self.tokens_per_second:.1f} tokens/s"
        if self.first_ms is not None:
            text += f", first token after {self.first_ms} ms"
        return text


current_request: ContextVar[RequestStats | None] = ContextVar("request", default=None)
"""The stats of the HTTP request that the running task works for."""
