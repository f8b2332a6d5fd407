"""What an answer has taken: counts of tokens, and seconds."""

from dataclasses import dataclass

from lead.generation.sequences import Sequence


@dataclass(frozen=True, slots=True)
class Figures:
    """`n_cached` of the `n_prompt` tokens were not read again; `n_generated` are those the client got.

    prompt: from getting a slot to the first token; generation: from there to the last one.
    """

    n_prompt: int
    n_cached: int
    n_generated: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    prompt_seconds: float = 0.0
    generation_seconds: float = 0.0

    @classmethod
    def of(cls, sequence: Sequence, n_generated: int) -> "Figures":
        """As far as the sequence has come; what was accepted behind a stop string did not help the client."""
        return cls(
            n_prompt=sequence.n_prompt,
            n_cached=sequence.n_cached,
            n_generated=n_generated,
            n_drafted=sequence.n_drafted,
            n_accepted=min(sequence.n_accepted, n_generated),
            prompt_seconds=between(sequence.started_at, sequence.first_token_at),
            generation_seconds=between(sequence.first_token_at, sequence.last_token_at),
        )


def between(start: float | None, end: float | None) -> float:
    """Seconds; 0 where one of the two has not been."""
    return 0.0 if start is None or end is None else end - start
