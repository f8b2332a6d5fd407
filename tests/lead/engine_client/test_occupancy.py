from lead.engine.events import Ready, Started
from lead.engine_client.occupancy import Occupancy
from lead.engine_client.sequences import Sequences
from tests.toy_engine import submit

READY = Ready(n_ctx=100, n_ctx_sequence=100, n_slots=2, speculates=True)


def start(sequences, n_tokens):
    sequence = sequences.create(submit(tokens=[1] * n_tokens))
    sequences.apply(Started(sequence=sequence.id, n_cached=1), 10.0)


def test_running_sequences_take_slots_and_cells_and_waiting_ones_do_not():
    sequences = Sequences()
    start(sequences, 30)
    sequences.create(submit(tokens=[1] * 50))
    occupancy = Occupancy.of(sequences, READY)
    assert (occupancy.n_free_slots, occupancy.kv_usage) == (1, 0.3)
    assert (occupancy.n_waiting, occupancy.n_waiting_tokens) == (1, 50)


def test_nothing_is_more_than_full():
    """A sequence that gave way runs on, and shared cells count for each sequence."""
    sequences = Sequences()
    for _ in range(3):
        start(sequences, 60)
    occupancy = Occupancy.of(sequences, READY)
    assert (occupancy.n_free_slots, occupancy.kv_usage) == (0, 1.0)
