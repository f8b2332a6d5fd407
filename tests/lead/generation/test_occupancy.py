from lead.engine.events import Ready
from lead.generation.occupancy import Occupancy
from lead.generation.sequences import LiveSequence, Status
from shared.sampling.parameters import SamplingParameters

READY = Ready(n_ctx=100, n_ctx_sequence=100, n_slots=2, speculates=True, exact=True)


def sequence(n_tokens, status):
    return LiveSequence("s", [1] * n_tokens, n_tokens, SamplingParameters(seed=1), status=status)


def test_running_requests_take_slots_and_cells_and_waiting_ones_do_not():
    load = Occupancy.of([sequence(30, Status.RUNNING), sequence(50, Status.QUEUED)], READY)
    assert (load.n_free_slots, load.kv_usage) == (1, 0.3)


def test_nothing_is_more_than_full():
    """A sequence that gave way runs on, and shared cells are counted for each."""
    load = Occupancy.of([sequence(60, Status.RUNNING)] * 3, READY)
    assert (load.n_free_slots, load.kv_usage) == (0, 1.0)
