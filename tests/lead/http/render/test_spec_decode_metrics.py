"""vLLM's figures of one request's drafts."""

import pytest

from lead.engine.speculation.drafts import MAX_DEPTH
from lead.generation.answer_stats import AnswerStats, VerifiedDraft
from lead.http.answers import AnswerEnd
from lead.http.render.spec_decode_metrics import spec_decode_metrics

DRAFTS = (VerifiedDraft(3, 3), VerifiedDraft(3, 0), VerifiedDraft(2, 1))


def end(*drafts):
    return AnswerEnd("stop", 1, 0, None, AnswerStats(5, 0, 8), drafts)


def of_one(*drafts, detail="summary"):
    return spec_decode_metrics([end(*drafts)], detail)["metrics"]["speculative_decoding"]


def test_a_summary_counts_steps_by_what_they_accepted():
    summary = of_one(*DRAFTS)
    assert summary.pop("mean_acceptance_length") == pytest.approx(1 + 4 / 3)
    assert summary.pop("draft_acceptance_rate") == pytest.approx(4 / 8)
    assert summary == {
        "acceptance_histogram": [1, 1, 0, 1] + [0] * (MAX_DEPTH - 3),
        "acceptance_histogram_by_draft_length": {"2": [0, 1, 0], "3": [1, 0, 0, 1]},
        "num_spec_steps": 3,
        "num_accepted_draft_tokens": 4,
        "num_draft_tokens": 8,
        "num_spec_tokens": MAX_DEPTH,
    }


def test_details_are_those_of_each_step_in_order():
    detailed = of_one(*DRAFTS, detail="detailed")
    assert (detailed["per_step_accepted"], detailed["per_step_drafted"]) == ([3, 0, 1], [3, 3, 2])


def test_without_drafts_all_is_zero():
    summary = of_one()
    assert (summary["mean_acceptance_length"], summary["draft_acceptance_rate"]) == (1.0, 0.0)
    assert not any(summary["acceptance_histogram"])


def test_they_are_null_for_several_answers_and_missing_unless_wanted():
    assert spec_decode_metrics([end(), end()], "summary") == {"metrics": {"speculative_decoding": None}}
    assert spec_decode_metrics([end()], "none") == {}
