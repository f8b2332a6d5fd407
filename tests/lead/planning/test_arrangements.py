"""Speeds are predicted from times and acceptance."""

import pytest

from lead.engine.commands import DRAFT_MODEL, MTP
from lead.planning.arrangements import arrangements, best, forecast
from lead.planning.measurements import AcceptanceRate, DrafterTimes, EngineTimes, SplitTimes

KNOWN = {}  # forecasts that several tests look at


@pytest.fixture(autouse=True)
def short_texts(monkeypatch):
    monkeypatch.setattr("lead.planning.arrangements._N_TOKENS", 64)


FLAT = {1: 0.05, 2: 0.051, 4: 0.053, 8: 0.057, 16: 0.06}
STEEP = {n: 0.05 * n for n in (1, 2, 4, 8, 16)}


def engine(steps=FLAT, cost=0.02, n_right=80, drafters=(DRAFT_MODEL,)):
    """A drafter's token takes `cost` steps of one token."""
    times = DrafterTimes(cost * steps[1], 0.0, 0.1, AcceptanceRate(n_right, 100))
    return EngineTimes(steps, 0.0001, dict.fromkeys(drafters, times))


def split(steps=FLAT, slower=2.0, cost=0.02, factors=(1.0, 1.0)):
    """Half of the cores each."""
    return SplitTimes((0,), (1,), {n: slower * s for n, s in steps.items()}, cost * steps[1], *factors)


def forecasts(times, splits=(), round_trips=(0.001,), acceptance=None, *, kinds=("none", "engine", "split")):
    """By kind; of several of one kind, the last."""
    found = [each for each in arrangements(times, splits, round_trips) if each.kind in kinds]
    return {each.kind: known_forecast(each, times, acceptance) for each in found}


def known_forecast(*arguments):
    key = repr(arguments)
    if key not in KNOWN:
        KNOWN[key] = forecast(*arguments)
    return KNOWN[key]


def rates(*arguments, **named):
    return {kind: each.tokens_per_second for kind, each in forecasts(*arguments, **named).items()}


def test_without_drafts_a_token_takes_a_step():
    assert rates(engine(), kinds=["none"])["none"] == pytest.approx(1 / 0.0501, rel=0.02)


def test_what_cannot_draft_is_not_among_them():
    kinds = [each.kind for each in arrangements(engine(drafters=()), [], [0.001])]
    assert kinds == ["none"]
    kinds = [each.kind for each in arrangements(engine(drafters=(MTP,)), [split()], [0.001])]
    assert kinds == ["none", "mtp"]


def test_a_cheap_draft_model_is_worth_it_inside():
    found = rates(engine(), [split()])
    assert found["engine"] > 2.5 * found["none"]
    assert found["engine"] > found["split"]


def test_a_costly_one_is_better_on_other_cores_that_the_lead_does_not_miss():
    found = rates(engine(cost=0.6), [split(slower=1.05, cost=0.6)], kinds=["engine", "split"])
    assert found["split"] > 1.1 * found["engine"]


def test_contention_costs():
    times = engine(cost=0.4)
    quiet, shared = (
        rates(times, [split(cost=0.4, factors=each)], kinds=["split"])["split"]
        for each in ((1.0, 1.0), (1.3, 1.6))
    )
    assert shared < 0.9 * quiet


def test_a_distant_back_is_worth_less():
    near, far = (rates(engine(), round_trips=(each,), kinds=["remote"])["remote"] for each in (0.001, 0.2))
    assert near > 1.2 * far


def test_where_steps_grow_with_their_tokens_nothing_is_gained():
    found = rates(engine(STEEP), [split(STEEP)])
    assert found["engine"] == pytest.approx(found["none"], rel=0.03)


def test_the_range_follows_the_certainty_of_the_acceptance():
    found = forecasts(engine())["engine"]
    assert found.low < 0.95 * found.tokens_per_second
    assert found.high > 1.05 * found.tokens_per_second
    given = forecasts(engine(), acceptance=0.8)["engine"]
    assert given.low == given.high == given.tokens_per_second == found.tokens_per_second


def test_a_given_acceptance_counts_and_not_the_measured_one():
    assert rates(engine(n_right=80), acceptance=0.3) == rates(engine(n_right=10), acceptance=0.3)


def test_of_nearly_equal_ones_that_with_the_fewest_parts_is_the_best():
    assert best(list(forecasts(engine(STEEP), [split(STEEP)]).values())).arrangement.kind == "none"
    assert best(list(forecasts(engine(), [split()]).values())).arrangement.kind == "engine"
