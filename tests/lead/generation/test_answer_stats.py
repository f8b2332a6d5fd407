from lead.engine.events import Committed
from lead.generation.answer_stats import AnswerStats, SourceStats, seconds_between
from lead.generation.sequences import LiveSequence
from shared.sampling.parameters import SamplingParameters


def committed(start, tokens, **more):
    return Committed(sequence="s", start=start, tokens=tokens, **more)


def test_figures_are_sums_over_the_steps():
    sequence = LiveSequence("s", [1, 2], 2, SamplingParameters(seed=0), n_cached=1, started_at=1.0)
    sequence.append(committed(2, [3, 4], sources=["desk", "desk"], n_accepted=1, rejected=[9]), 3.0)
    sequence.append(committed(4, [5]), 4.5)
    by_source = (SourceStats("desk", 2, 1),)
    assert AnswerStats.of(sequence, 3) == AnswerStats(2, 1, 3, 2, 1, 2.0, 1.5, by_source)


def test_no_more_is_accepted_than_the_client_got():
    """The step went on behind a stop string."""
    sequence = LiveSequence("s", [1, 2, 3], 2, SamplingParameters(seed=1), n_drafted=4, n_accepted=4)
    assert AnswerStats.of(sequence, 1).n_accepted == 1


def test_what_has_not_been_took_no_time():
    assert seconds_between(None, 2.0) == seconds_between(2.0, None) == 0.0
