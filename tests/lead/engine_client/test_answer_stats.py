import pytest

from lead.engine.events import Committed
from lead.engine_client.answer_stats import AnswerStats, SourceStats
from lead.engine_client.sequences import LiveSequence
from tests.toy_engine import submit


def committed(start, tokens, **more):
    return Committed(sequence="s", start=start, tokens=tokens, **more)


def test_figures_are_sums_over_the_steps():
    sequence = LiveSequence(submit(tokens=[1, 2]), n_cached=1, started_at=1.0)
    sequence.append(committed(2, [3, 4], sources=["desk", "desk"], n_accepted=1, rejected=[9]), 3.0)
    sequence.append(committed(4, [5]), 4.5)
    by_source = (SourceStats("desk", 2, 1),)
    assert AnswerStats.of(sequence, 3) == AnswerStats(2, 1, 3, 2, 1, 2.0, 1.5, by_source, n_first=2)


@pytest.mark.parametrize("n_received", [3, 2])
def test_one_step_has_no_rate(n_received):
    """More steps have none either if the client received only tokens of the first step."""
    sequence = LiveSequence(submit(tokens=[1, 2]), started_at=1.0)
    sequence.append(committed(2, [3, 4, 5]), 3.0)
    if n_received == 2:
        sequence.append(committed(5, [6, 7]), 3.5)
    assert AnswerStats.of(sequence, n_received).tokens_per_second is None


def test_no_more_is_accepted_than_the_client_got():
    """The step went on after a stop string."""
    sequence = LiveSequence(submit(tokens=[1, 2]), n_drafted=4, n_accepted=4)
    assert AnswerStats.of(sequence, 1).n_accepted == 1
