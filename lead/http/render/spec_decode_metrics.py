"""vLLM's acceptance metrics of a single request: `metrics.speculative_decoding` of an answer."""

from collections.abc import Sequence
from typing import Any

from lead.engine.speculation.drafts import MAX_DEPTH
from lead.generation.answer_stats import SpecDecodeDetail, VerifiedDraft
from lead.http.answers import AnswerEnd


def spec_decode_metrics(ends: Sequence[AnswerEnd], detail: SpecDecodeDetail) -> dict[str, Any]:
    """The field `metrics` of an answer, if it has one; like vLLM's null if there are several answers."""
    if detail == "none":
        return {}
    whole = _of_one(ends[0].drafts, detail) if len(ends) == 1 else None
    return {"metrics": {"speculative_decoding": whole}}


def _of_one(drafts: Sequence[VerifiedDraft], detail: SpecDecodeDetail) -> dict[str, Any]:
    n_drafted, n_accepted = sum(each.n_drafted for each in drafts), sum(each.n_accepted for each in drafts)
    lengths = sorted({each.n_drafted for each in drafts})
    metrics = {
        "mean_acceptance_length": 1 + n_accepted / len(drafts) if drafts else 1.0,
        "draft_acceptance_rate": n_accepted / n_drafted if n_drafted else 0.0,
        "acceptance_histogram": _histogram(drafts, MAX_DEPTH),
        "acceptance_histogram_by_draft_length": {
            str(length): _histogram([each for each in drafts if each.n_drafted == length], length)
            for length in lengths
        },
        "num_spec_steps": len(drafts),
        "num_accepted_draft_tokens": n_accepted,
        "num_draft_tokens": n_drafted,
        "num_spec_tokens": MAX_DEPTH,
    }
    if detail == "detailed":
        metrics["per_step_accepted"] = [each.n_accepted for each in drafts]
        metrics["per_step_drafted"] = [each.n_drafted for each in drafts]
    return metrics


def _histogram(drafts: Sequence[VerifiedDraft], longest: int) -> list[int]:
    """How many steps accepted 0, 1, … `longest` tokens."""
    counts = [0] * (longest + 1)
    for each in drafts:
        counts[each.n_accepted] += 1
    return counts
