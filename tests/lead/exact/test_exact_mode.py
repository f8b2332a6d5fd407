from lead.engine.events import EXACT_SAMPLE, Exactness
from lead.exact.exact_mode import EXACT, ExactMode
from shared.exact.batch_invariance import InvariantSizes


def test_what_always_holds_is_always_said():
    assert ExactMode(batch_sizes=InvariantSizes((2,), (2,)), cost=1.2).guarantee.startswith(EXACT_SAMPLE)
    assert ExactMode(reason="too large").guarantee.startswith(EXACT_SAMPLE)


def test_equal_bits_are_promised_only_in_exact_mode():
    assert f"--exact gives {EXACT}" in ExactMode(batch_sizes=InvariantSizes((2,), (2,)), cost=1.2).guarantee
    assert f"For {EXACT}, add --exact" in ExactMode(cost=1.2).guarantee


def test_what_it_would_cost_is_said():
    assert "then takes 1.23 times as long" in ExactMode(cost=1.234).guarantee


def test_what_is_not_known_is_not_guessed():
    assert ExactMode(reason="too large").guarantee.endswith("add --exact (not measured: too large)")


def test_a_short_limit_on_drafts_is_said():
    assert "at most 2 tokens" in ExactMode(batch_sizes=InvariantSizes((2, 3), (8, 16)), cost=1.5).guarantee
    assert "at most" not in ExactMode(batch_sizes=InvariantSizes((2, 9), (2, 9)), cost=1.5).guarantee


def test_the_next_process_is_told_all_of_it():
    found = ExactMode(batch_sizes=InvariantSizes((2, 3), (8, 16)), cost=1.5, key="of this start")
    told = Exactness.model_validate_json(found.exactness().model_dump_json())
    assert ExactMode.of(told) == found
    assert (told.is_on, told.cost, told.guarantee) == (True, 1.5, found.guarantee)
    assert ExactMode.of(None) is None
