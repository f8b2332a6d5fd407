from lead.engine.events import Exactness
from lead.generation.exactness import ALWAYS, EXACT, promise
from shared.llama.batch_invariance import InvariantSizes


def test_what_always_holds_is_always_said():
    assert promise(Exactness(batch_sizes=InvariantSizes((2,), (2,)), cost=1.2)).startswith(ALWAYS)
    assert promise(Exactness(reason="too large")).startswith(ALWAYS)


def test_equal_bits_are_promised_only_in_exact_mode():
    assert f"and {EXACT}" in promise(Exactness(batch_sizes=InvariantSizes((2,), (2,)), cost=1.2))
    assert f"--exact would also give {EXACT}" in promise(Exactness(cost=1.2))


def test_what_it_would_cost_is_said():
    assert "would take 1.23 times as long" in promise(Exactness(cost=1.234))


def test_what_is_not_known_is_not_guessed():
    assert promise(Exactness(reason="too large")).endswith("not here, or not known (too large)")


def test_a_short_limit_on_drafts_is_said():
    assert "at most 2 tokens" in promise(Exactness(batch_sizes=InvariantSizes((2, 3), (8, 16)), cost=1.5))
    assert "at most" not in promise(Exactness(batch_sizes=InvariantSizes((2, 9), (2, 9)), cost=1.5))
