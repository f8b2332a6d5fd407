"""The shapes of answers: usage, timings and speculation under the names that clients know."""

from collections.abc import Sequence
from typing import Any

from lead.generation.completions import Outcome, Piece, Progress
from lead.generation.figures import Figures

FINGERPRINT = "b-llama-duo"
"""Some clients of llama-server look for its b: there a build's number follows."""


def usage(outcomes: Sequence[Outcome], n: int = 1) -> dict[str, Any]:
    """OpenAI's `usage`, summed over the answers of one request; a prompt counts once for its `n` answers."""
    figures = [outcome.figures for outcome in outcomes]
    n_prompt = sum(each.n_prompt for each in figures) // n
    n_generated = sum(each.n_generated for each in figures)
    n_accepted = sum(each.n_accepted for each in figures)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_generated,
        "total_tokens": n_prompt + n_generated,
        "prompt_tokens_details": {"cached_tokens": sum(each.n_cached for each in figures) // n},
        "completion_tokens_details": {
            "accepted_prediction_tokens": n_accepted,
            "rejected_prediction_tokens": sum(each.n_drafted for each in figures) - n_accepted,
        },
    }


def timings(figures: Figures) -> dict[str, Any]:
    """llama-server's `timings`.

    `predicted_ms` runs from the first token to the last, so the rates count the tokens after the first.
    """
    n_processed = figures.n_prompt - figures.n_cached
    n_steps = figures.n_generated - 1
    return {
        "cache_n": figures.n_cached,
        "prompt_n": n_processed,
        "prompt_ms": _ms(figures.prompt_seconds),
        "prompt_per_token_ms": _ms(_ratio(figures.prompt_seconds, n_processed)),
        "prompt_per_second": _ratio(n_processed, figures.prompt_seconds),
        "predicted_n": figures.n_generated,
        "predicted_ms": _ms(figures.generation_seconds),
        "predicted_per_token_ms": _ms(_ratio(figures.generation_seconds, n_steps)),
        "predicted_per_second": _ratio(n_steps, figures.generation_seconds),
        "draft_n": figures.n_drafted,
        "draft_n_accepted": figures.n_accepted,
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
    n_cached = min(progress.n_cached, progress.n_processed)
    return timings(Figures(progress.n_processed, n_cached, prompt_seconds=progress.seconds))


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
