import numpy as np
import pytest

from lead.engine.sequence import Verification
from lead.engine.speculation.manager import SpeculationManager
from lead.engine.speculation.speculation_stats import StepReport
from shared.protocol import MAX_DRAFT_TOKENS, Tune
from tests.toy_engine import engine_sequence

NO_LOGITS = np.empty(0, np.float32)
CHEAP = {1: 1.0, 2: 1.05, 3: 1.1, 4: 1.15, 5: 1.2}


def managed(policy="adaptive", depth=4, table=()):
    """A manager with known T(n) / T(1)."""
    manager = SpeculationManager(policy, depth, frozenset())
    for n, ratio in dict(table).items():
        manager.cost.learn(n, 0.05 * ratio)
    return manager


def run(manager, n_steps, depth=0, n_committed=1, table=CHEAP):
    """The updates that backs get during steps of one sequence."""
    told, sequence = [], engine_sequence(tokens=[1])
    manager.open(sequence, 0.0)
    for _ in range(n_steps):
        committed = Verification(sequence.drafts, 1, (), NO_LOGITS, [7] * n_committed)
        manager.on_commit(committed, 0.0)
        manager.count(committed)
        seconds = 0.05 * table[1 + depth]
        manager.on_step(StepReport(1 + depth, seconds, [depth], n_committed, float(n_committed)))
        told += manager.pop_events()
    return told


def test_backs_draft_far_ahead_at_first_without_being_told():
    assert run(managed(), 3) == []


@pytest.mark.parametrize(
    ("n_steps", "depth", "n_ahead"), [(64, 0, 2), (32, 4, 10)], ids=["little, but not nothing", "further"]
)
def test_backs_draft_for_the_step_after_the_one_under_way(n_steps, depth, n_ahead):
    (told,) = run(managed(), n_steps, depth=depth, n_committed=1 + depth)
    assert told.n_ahead == n_ahead


def test_one_deep_step_among_shallow_ones_is_remembered_for_a_while():
    manager = managed()
    run(manager, 15)
    (told,) = run(manager, 1, depth=4)
    assert told.n_ahead == 10
    assert run(manager, 200)[-1].n_ahead == 2


@pytest.mark.parametrize(("slope", "least", "most"), [(0.5, 0.15, 0.3), (0.0, 0.0, 0.0)])
def test_the_dearer_further_tokens_are_the_surer_ones_backs_are_asked_for(slope, least, most):
    table = {n: 1 + slope * (n - 1) for n in range(1, 12)}
    manager = managed(table=table)
    run(manager, 32, table=table)
    assert least <= manager.tuning.min_confidence <= most


def test_what_the_machine_did_long_ago_or_slept_through_is_forgotten():
    expensive = {n: 1 + 0.5 * (n - 1) for n in range(1, 12)}
    manager = managed(table=expensive)
    run(manager, 32, table=expensive)
    before = manager.tuning.min_confidence
    manager.on_step(StepReport(1, 3 * 3600.0, [0], 1, 1.0))
    run(manager, 800, table=expensive)
    assert manager.tuning.min_confidence == pytest.approx(before, abs=0.05)


def test_small_changes_are_not_sent():
    manager = managed()
    run(manager, 64, depth=2, n_committed=3)
    assert run(manager, 64, depth=2, n_committed=3) == []


def test_without_speculation_backs_draft_nothing():
    manager = managed()
    manager.set_policy("off", 4)
    assert manager.pop_events() == [Tune(n_ahead=0, min_confidence=0.0)]
    manager.set_policy("fixed", 4)
    assert manager.pop_events() == [Tune(n_ahead=16, min_confidence=0.0)]


@pytest.mark.parametrize("policy", ["fixed", "sync"])
def test_backs_are_asked_for_as_many_tokens_as_are_verified(policy):
    (told,) = managed(policy, 32).pop_events()
    assert 32 <= told.n_ahead <= MAX_DRAFT_TOKENS


@pytest.mark.parametrize("policy", ["fixed", "sync", "off"])
def test_only_the_adaptive_policy_tunes_backs_while_running(policy):
    manager = managed(policy)
    manager.pop_events()
    assert run(manager, 64) == []


def test_in_a_pause_backs_draft_nothing_and_then_as_before():
    tuning = managed().tuning
    tuning.pause()
    assert tuning.pop_change() == Tune(n_ahead=0, min_confidence=0.0)
    assert tuning.pop_change() is None
    tuning.note_step([0], 1, 0.1)
    assert tuning.pop_change() == Tune(n_ahead=16, min_confidence=0.0)
