"""The shapes of answers: usage, timings and speculation under the names that clients know."""

from collections.abc import Sequence
from typing import Any

from lead.completions import Outcome, Piece, Progress

FINGERPRINT = "b-llama-duo"
"""Some clients of llama-server look for its b: there a build's number follows."""


def usage(outcomes: Sequence[Outcome], n: int = 1) -> dict[str, Any]:
    """OpenAI's `usage`, summed over the answers of one request; a prompt counts once for its `n` answers."""
    n_prompt = sum(outcome.n_prompt for outcome in outcomes) // n
    n_generated = sum(outcome.n_generated for outcome in outcomes)
    n_accepted = sum(outcome.n_accepted for outcome in outcomes)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_generated,
        "total_tokens": n_prompt + n_generated,
        "prompt_tokens_details": {"cached_tokens": sum(outcome.n_cached for outcome in outcomes) // n},
        "completion_tokens_details": {
            "accepted_prediction_tokens": n_accepted,
            "rejected_prediction_tokens": sum(outcome.n_drafted for outcome in outcomes) - n_accepted,
        },
    }


def timings(outcome: Outcome) -> dict[str, Any]:
    """llama-server's `timings`.

    `predicted_ms` runs from the first token to the last, so the rates count the tokens after the first.
    """
    n_processed = outcome.n_prompt - outcome.n_cached
    n_steps = outcome.n_generated - 1
    return {
        "cache_n": outcome.n_cached,
        "prompt_n": n_processed,
        "prompt_ms": _ms(outcome.prompt_seconds),
        "prompt_per_token_ms": _ms(_ratio(outcome.prompt_seconds, n_processed)),
        "prompt_per_second": _ratio(n_processed, outcome.prompt_seconds),
        "predicted_n": outcome.n_generated,
        "predicted_ms": _ms(outcome.generation_seconds),
        "predicted_per_token_ms": _ms(_ratio(outcome.generation_seconds, n_steps)),
        "predicted_per_second": _ratio(n_steps, outcome.generation_seconds),
        "draft_n": outcome.n_drafted,
        "draft_n_accepted": outcome.n_accepted,
    }


def prompt_progress(progress: Progress) -> dict[str, Any]:
    """llama-server's; what was cached counts as processed."""
    return {
        "total": progress.n_total,
        "cache": progress.n_cached,
        "processed": progress.n_processed,
        "time_ms": _ms(progress.seconds),
    }


def timings_of_prompt(progress: Progress) -> dict[str, Any]:
    """`timings` while there is no token yet."""
    return timings(
        Outcome(
            reason="stop",
            seed=0,
            n_prompt=progress.n_processed,
            n_cached=min(progress.n_cached, progress.n_processed),
            n_generated=0,
            n_drafted=0,
            n_accepted=0,
            slot=None,
            stop_string=None,
            prompt_seconds=progress.seconds,
            generation_seconds=0.0,
        )
    )


def speculation(pieces: Sequence[Piece]) -> dict[str, Any]:
    """Which tokens of a chunk were drafted, and by whom (source null: by nobody)."""
    return {
        "tokens": [
            {"text": token.text, "source": token.source} for piece in pieces for token in piece.tokens
        ],
        "n_drafted": sum(piece.n_drafted for piece in pieces),
        "n_accepted": sum(piece.n_accepted for piece in pieces),
    }


def _ms(seconds: float) -> float:
    return seconds * 1000  # not rounded: clients divide by it


def _ratio(value: float, by: float) -> float:
    return value / by if by > 0 else 0.0
