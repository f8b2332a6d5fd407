"""Llama-server's `timings` and `prompt_progress`, and our `speculation`: parts of several APIs' answers."""

from collections.abc import Sequence
from typing import Any

from lead.generation.answer_stats import AnswerStats
from lead.http.answers import AnswerUpdate, ReadProgress


def timings(stats: AnswerStats) -> dict[str, Any]:
    """`predicted_ms` begins at the end of the first step, so the rates count the tokens after that step."""
    n_processed = stats.n_prompt - stats.n_cached
    return {
        "cache_n": stats.n_cached,
        "prompt_n": n_processed,
        "prompt_ms": _ms(stats.prompt_seconds),
        "prompt_per_token_ms": _ms(_ratio(stats.prompt_seconds, n_processed)),
        "prompt_per_second": _ratio(n_processed, stats.prompt_seconds),
        "predicted_n": stats.n_generated,
        "predicted_ms": _ms(stats.generation_seconds),
        "predicted_per_token_ms": _ms(_ratio(stats.generation_seconds, stats.n_after_first)),
        "predicted_per_second": stats.tokens_per_second or 0.0,
        "draft_n": stats.n_drafted,
        "draft_n_accepted": stats.n_accepted,
    }


def prompt_progress(progress: ReadProgress) -> dict[str, Any]:
    """Cached tokens count as processed."""
    return {
        "total": progress.n_total,
        "cache": progress.n_cached,
        "processed": progress.n_processed,
        "time_ms": _ms(progress.seconds),
    }


def timings_of_prompt(progress: ReadProgress) -> dict[str, Any]:
    """`timings` while there is no token yet."""
    n_cached = min(progress.n_cached, progress.n_processed)
    return timings(AnswerStats(progress.n_processed, n_cached, prompt_seconds=progress.seconds))


def speculation(updates: Sequence[AnswerUpdate]) -> dict[str, Any]:
    """Which tokens were drafted, and by which source (null: not drafted)."""
    return {
        "tokens": [
            {"text": token.text, "source": token.source} for update in updates for token in update.tokens
        ],
        "n_drafted": sum(update.n_drafted for update in updates),
        "n_accepted": sum(update.n_accepted for update in updates),
    }


def _ms(seconds: float) -> float:
    return seconds * 1000  # not rounded: clients divide by it


def _ratio(value: float, by: float) -> float:
    return value / by if by > 0 else 0.0
