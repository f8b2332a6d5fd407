import pytest

from lead.engine.events import EXACT_SAMPLE, Exactness
from lead.exact.exact_mode import EXACT, ExactMode
from shared.exact.batch_invariance import InvariantSizes


@pytest.mark.parametrize(
    ("mode", "said", "unsaid"),
    [
        (
            ExactMode(batch_sizes=InvariantSizes((2, 9), (2, 9)), cost=1.2),
            f"--exact gives {EXACT}",
            "at most",
        ),
        (ExactMode(batch_sizes=InvariantSizes((2, 3), (8, 16)), cost=1.5), "at most 2 tokens", "add --exact"),
        (ExactMode(cost=1.234), f"For {EXACT}, add --exact", "--exact gives"),
        (ExactMode(cost=1.234), "then takes 1.23 times as long", "not measured"),
        (
            ExactMode(batch_sizes=InvariantSizes((2, 9), (2, 9)), reason="noise"),
            f"--exact gives {EXACT} (its cost was not measured: noise)",
            "as long",
        ),
        (ExactMode(reason="too large"), "add --exact (not measured: too large)", "as long"),
    ],
)
def test_what_holds_and_what_it_costs_is_said_as_far_as_it_is_known(mode, said, unsaid):
    assert mode.guarantee.startswith(EXACT_SAMPLE)
    assert (said in mode.guarantee, unsaid in mode.guarantee) == (True, False)


def test_the_next_process_is_told_all_of_it():
    found = ExactMode(batch_sizes=InvariantSizes((2, 3), (8, 16)), cost=1.5, key="of this start")
    told = Exactness.model_validate_json(found.exactness().model_dump_json())
    assert ExactMode.of(told) == found
    assert (told.is_on, told.cost, told.guarantee) == (True, 1.5, found.guarantee)
    assert ExactMode.of(None) is None
