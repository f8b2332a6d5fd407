"""The planner learns, whatever its policy, and tells backs what pays."""

import json

import pytest

from lead.engine.events import Tuned
from lead.engine.speculation.board import Proposal, Trial
from lead.engine.speculation.planner import Planner, Step
from lead.engine.speculation.policy import Offer
from shared.protocol import MAX_DRAFT_TOKENS

FOUR = Offer(Proposal((1, 2, 3, 4), ("a",) * 4, (0.9,) * 4), 99)
CHEAP = {1: 1.0, 2: 1.05, 3: 1.1, 4: 1.15, 5: 1.2}


def run(planner, n_steps, depth=0, n_committed=1, table=CHEAP):
    """Steps of one sequence; what backs are told meanwhile."""
    told = []
    for _ in range(n_steps):
        seconds = 0.05 * table[1 + depth]
        planner.tally.n_committed += n_committed
        planner.learn_step(Step(1 + depth, seconds, [depth], n_committed, float(n_committed)))
        told.append(planner.take_tuned())
    return [tuned for tuned in told if tuned]


@pytest.mark.parametrize(("policy", "depth"), [("fixed", 3), ("sync", 3), ("off", 0), ("adaptive", 4)])
def test_the_policy_decides(policy, depth):
    planner = Planner(policy, 3)
    for n, ratio in CHEAP.items():
        planner.cost.learn(n, 0.05 * ratio)
    assert planner.choose([FOUR], 0).depths == (depth,)


def test_a_new_policy_keeps_what_was_learned():
    planner = Planner("off", 4)
    run(planner, 5)
    planner.acceptance.learn([Trial("a", 0.9, "alone", 0, True)])
    planner.set_policy("adaptive", 2)
    assert (planner.name, planner.depth, planner.tally.n_steps) == ("adaptive", 2, 5)
    assert planner.cost.seconds(1) == pytest.approx(0.05)
    assert planner.acceptance.sources == ["a"]


# What was expected and what came


def test_steps_with_prompts_are_not_predicted():
    planner = Planner("adaptive", 4)
    planner.learn_step(Step(64, 1.0, [0], 1, None))
    report = planner.describe()
    assert (report["n_steps"], report["step_seconds"]) == (1, 1.0)
    assert report["actual_tokens_per_second"] is None


def test_a_prediction_is_made_before_its_step_is_known():
    planner = Planner("fixed", 4)
    planner.cost.learn(5, 0.1)
    planner.learn_step(Step(5, 0.2, [4], 2, 4.0))
    report = planner.describe()
    assert report["predicted_tokens_per_second"] == pytest.approx(40.0)
    assert report["actual_tokens_per_second"] == pytest.approx(10.0)


def test_the_wait_before_a_step_counts_for_it_once():
    planner = Planner("sync", 4)
    planner.cost.learn(5, 0.1)
    planner.learn_wait(0.06)
    planner.learn_wait(0.04)
    for _ in range(2):
        planner.learn_step(Step(5, 0.1, [4], 3, 3.0))
    report = planner.describe()
    assert report["wait_seconds"] == pytest.approx(0.1)
    assert report["actual_tokens_per_second"] == pytest.approx(6 / 0.3)
    assert report["predicted_tokens_per_second"] == pytest.approx(6 / 0.3)


def test_the_report_is_plain_json():
    planner = Planner("adaptive", 4)
    planner.arrivals.connected(["b"])
    planner.acceptance.learn([Trial("a", None, "alone", 0, True)])
    run(planner, 40, depth=2, n_committed=3)
    report = planner.describe()
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert sorted(report["sources"]) == ["a", "b"]
    assert report["step_ms"] == {"3": pytest.approx(55.0)}
    assert report["depths"] == {"2": 40}


# What backs are told


def test_backs_begin_far_ahead_and_unasked():
    assert run(Planner("adaptive", 4), 3) == []


def test_backs_whose_drafts_are_not_taken_are_told_to_draft_little_but_not_nothing():
    (told,) = run(Planner("adaptive", 4), 64)
    assert told.n_ahead == 2


def test_backs_draft_for_the_step_after_the_one_under_way():
    (told,) = run(Planner("adaptive", 4), 32, depth=4, n_committed=5)
    assert told.n_ahead >= 2 * 4


def test_one_deep_step_among_shallow_ones_is_remembered_for_a_while():
    planner = Planner("adaptive", 4)
    run(planner, 15)
    (told,) = run(planner, 1, depth=4)
    assert told.n_ahead == 10
    assert run(planner, 200)[-1].n_ahead == 2


def test_dear_places_ask_for_surer_tokens():
    dear = {n: 1 + 0.5 * (n - 1) for n in range(1, 12)}
    planner = Planner("adaptive", 4)
    for n, ratio in dear.items():
        planner.cost.learn(n, 0.05 * ratio)
    told = run(planner, 32, table=dear)[-1]
    assert 0.15 < told.min_confidence <= 0.3


def test_free_places_ask_for_any_tokens():
    flat = dict.fromkeys(range(1, 12), 1.0)
    planner = Planner("adaptive", 4)
    for n, ratio in flat.items():
        planner.cost.learn(n, 0.05 * ratio)
    run(planner, 32, table=flat)
    assert planner.min_confidence == 0


def test_small_changes_are_not_worth_a_message():
    planner = Planner("adaptive", 4)
    run(planner, 64, depth=2, n_committed=3)
    assert run(planner, 64, depth=2, n_committed=3) == []


def test_with_no_speculation_backs_may_rest():
    planner = Planner("adaptive", 4)
    planner.set_policy("off", 4)
    assert planner.take_tuned() == Tuned(n_ahead=0, min_confidence=0.0)
    planner.set_policy("fixed", 4)
    assert planner.take_tuned() == Tuned(n_ahead=16, min_confidence=0.0)


@pytest.mark.parametrize("policy", ["fixed", "sync"])
def test_backs_are_asked_for_as_many_tokens_as_are_taken(policy):
    planner = Planner(policy, 32)
    assert 32 <= planner.take_tuned().n_ahead <= MAX_DRAFT_TOKENS


@pytest.mark.parametrize("policy", ["fixed", "sync", "off"])
def test_only_the_adaptive_policy_tunes_backs_while_running(policy):
    planner = Planner(policy, 4)
    planner.take_tuned()
    assert run(planner, 64) == []


def test_steps_that_took_no_time_are_no_trouble():
    planner = Planner("adaptive", 4)
    for _ in range(64):
        planner.learn_step(Step(1, 0.0, [0], 1, 1.0))
    assert planner.describe()["n_steps"] == 64


def test_what_adaptive_has_learned_outlives_another_policy():
    planner = Planner("adaptive", 4)
    before = planner._policy
    planner.set_policy("sync", 2)
    planner.set_policy("adaptive", 4)
    assert planner._policy is before
