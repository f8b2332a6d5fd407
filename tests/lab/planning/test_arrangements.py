"""Speeds are predicted from times and acceptance."""

from dataclasses import replace

import pytest

from lab.planning.arrangements import (
    _N_WARM_UP,
    Arrangement,
    Machines,
    SpeedForecast,
    arrangements,
    best,
    best_by_place,
    better_elsewhere,
    faster_model,
    forecast,
    gains_of_more,
    n_machines,
    other_models_pay,
)
from lab.planning.measurements import AcceptanceRate, DrafterTimes, EngineTimes, PairTimes, SplitTimes
from lead.engine.commands import DRAFT_MODEL, MTP


@pytest.fixture(autouse=True)
def short_texts(monkeypatch):
    monkeypatch.setattr("lab.planning.arrangements._N_TOKENS", 128)
    monkeypatch.setattr("lab.planning.arrangements._N_SEEDS", 1)
    monkeypatch.setattr("lab.planning.arrangements._N_WARM_UP", 64)


FLAT = {1: 0.05, 2: 0.051, 4: 0.053, 8: 0.057, 16: 0.06}
STEEP = {n: 0.05 * n for n in (1, 2, 4, 8, 16)}


def engine(steps=FLAT, cost=0.02, n_right=80, drafters=(DRAFT_MODEL,)):
    """The times of an engine whose drafter takes `cost` steps of one token for a draft token."""
    times = DrafterTimes(cost * steps[1], 0.0, 0.1, AcceptanceRate(n_right, 100))
    return EngineTimes(steps, 0.0001, dict.fromkeys(drafters, times))


def split(steps=FLAT, slower=2.0, cost=0.02, factors=(1.0, 1.0)):
    """Times if target and drafter have half of the cores each."""
    return SplitTimes((0,), (1,), {n: slower * s for n, s in steps.items()}, cost * steps[1], *factors)


def rate(kind, times, *, acceptance=0.8, **where):
    """Tokens per second of an arrangement."""
    return forecast(Arrangement(kind, **where), times, acceptance).tokens_per_second


def test_without_drafts_a_token_takes_a_step():
    assert rate("none", engine()) == pytest.approx(1 / 0.0501, rel=0.02)


def test_what_a_change_of_width_costs_on_a_gpu_is_charged():
    far, free = {"elsewhere": Machines()}, engine(cost=0.1)
    costly = replace(free, settling=(0.02, 0.04))
    assert rate("remote", costly, **far) < 0.98 * rate("remote", free, **far)


def test_what_cannot_draft_is_not_among_them():
    kinds = [each.kind for each in arrangements(PairTimes(engine(drafters=())), [Machines()])]
    assert kinds == ["none"]
    kinds = [each.kind for each in arrangements(PairTimes(engine(drafters=(MTP,)), [split()]), [Machines()])]
    assert kinds == ["none", "mtp"]


def test_a_cheap_draft_model_is_worth_it_inside():
    inside = rate("engine", engine())
    assert inside > 2.5 * rate("none", engine())
    assert inside > rate("split", engine(), split=split())


def test_a_costly_one_is_better_on_other_cores_that_the_lead_does_not_miss():
    other_cores = rate("split", engine(cost=0.6), split=split(slower=1.05, cost=0.6))
    assert other_cores > 1.1 * rate("engine", engine(cost=0.6))


def test_contention_costs():
    factors = (1.0, 1.0), (1.3, 1.6)
    quiet, shared = (rate("split", engine(), split=split(cost=0.4, factors=each)) for each in factors)
    assert shared < 0.9 * quiet


def test_a_distant_back_is_worth_less():
    near, far = (rate("remote", engine(), elsewhere=Machines(1, each)) for each in (0.001, 0.2))
    assert near > 1.2 * far


def test_a_faster_machine_drafts_more():
    slow, fast = (rate("remote", engine(cost=0.3), elsewhere=Machines(speed=each)) for each in (0.5, 4))
    assert fast > 1.2 * slow


def test_where_steps_grow_with_their_tokens_nothing_is_gained():
    assert rate("engine", engine(STEEP)) == pytest.approx(rate("none", engine(STEEP)), rel=0.03)


def test_the_range_follows_the_certainty_of_the_acceptance():
    found = forecast(Arrangement("engine"), engine())
    assert found.low < 0.95 * found.tokens_per_second
    assert found.high > 1.05 * found.tokens_per_second
    given = forecast(Arrangement("engine"), engine(), 0.8)
    assert given.low == given.high == given.tokens_per_second == found.tokens_per_second


@pytest.fixture
def hardly_pays():
    """Short steps, which take longer with each token: a lead tries drafts a few times, then pauses them."""
    steps = {1: 0.001, 2: 0.00132, 4: 0.00201, 8: 0.00289}
    drafter = DrafterTimes(0.0006, 0.0, 0.3, AcceptanceRate(91, 100))
    return EngineTimes(steps, 0.00001, {DRAFT_MODEL: drafter})


def test_the_range_encloses_a_value_that_a_lower_acceptance_would_raise(hardly_pays):
    """With a lower acceptance the lead sees sooner that drafts do not pay."""
    found = forecast(Arrangement("engine"), hardly_pays)
    assert found.low <= found.tokens_per_second <= found.high


def test_a_lead_has_tried_what_does_not_pay_before_its_speed_is_forecast(hardly_pays, monkeypatch):
    monkeypatch.setattr("lab.planning.arrangements._N_WARM_UP", _N_WARM_UP)
    monkeypatch.setattr("lab.planning.arrangements._N_TOKENS", 512)
    assert rate("engine", hardly_pays, acceptance=0.91) > 0.99 * rate("none", hardly_pays)


def test_a_given_acceptance_counts_and_not_the_measured_one():
    few, many = (rate("engine", engine(n_right=n), acceptance=0.3) for n in (10, 80))
    assert few == many


def test_a_bigger_and_better_draft_model_may_win_elsewhere_although_it_loses_in_the_engine():
    """Its tokens take long. This delays steps in the engine, but not if another machine drafts."""
    small = PairTimes(engine(cost=0.05, n_right=70), draft_model="small")
    big = PairTimes(engine(cost=0.25, n_right=85), draft_model="big")
    found = [
        forecast(each, pair.engine)
        for pair in (small, big)
        for each in arrangements(pair, [Machines()])
        if each.draft_model
    ]
    winners = {each.arrangement.kind: each.arrangement.draft_model for each in best_by_place(found)}
    assert winners == {"engine": "small", "remote": "big"}


def test_of_nearly_equal_ones_that_with_the_fewest_parts_is_the_best():
    def forecasts(*rates):
        return [
            SpeedForecast(Arrangement(kind), each, each, each)
            for kind, each in zip(("none", "engine", "split"), rates, strict=True)
        ]

    assert best(forecasts(20.0, 20.3, 20.1)).arrangement.kind == "none"
    assert best(forecasts(20.0, 40.0, 40.5)).arrangement.kind == "engine"
    assert best(forecasts(20.0, 40.0, 41.0)).arrangement.kind == "split"


def elsewhere(rates):
    """Forecasts without drafts, and for numbers of other machines with these tokens per second."""
    remote = (SpeedForecast(Arrangement("remote", elsewhere=Machines(n)), v, v, v) for n, v in rates.items())
    return [SpeedForecast(Arrangement("none"), 20.0, 20.0, 20.0), *remote]


def test_what_more_backs_add_is_told_by_the_next_number():
    pairs = gains_of_more(elsewhere({1: 30.0, 2: 33.0, 4: 33.3}))
    expected = [(30.0, 33.0), (33.0, 33.3)]
    assert [(fewer.tokens_per_second, more.tokens_per_second) for fewer, more in pairs] == expected


def test_more_machines_are_not_advised_for_hardly_more_speed():
    (better,) = better_elsewhere(elsewhere({1: 30.0, 2: 33.0, 4: 33.3}))
    assert better.arrangement.elsewhere.n == 2


# Other draft models


def test_two_backs_with_different_draft_models_give_more_than_two_with_the_same():
    plan = [
        forecast(Arrangement("remote", elsewhere=each), engine(cost=0.1, n_right=70))
        for each in (Machines(), Machines(2), Machines(2, differ=True))
    ]
    expected = [(2, False), (2, True)]
    assert [(n_machines(more), more.arrangement.differs) for _, more in gains_of_more(plan)] == expected
    assert other_models_pay(plan)


@pytest.mark.parametrize(("rate", "named"), [(40.0, [False, True]), (33.1, [False]), (9.0, [False])])
def test_a_model_that_nobody_has_is_named_after_those_at_hand_if_it_is_faster(rate, named):
    rival = SpeedForecast(Arrangement("remote", elsewhere=Machines(2, differ=True)), rate, rate, rate)
    better = better_elsewhere([*elsewhere({1: 30.0, 2: 33.0}), rival])
    assert [each.arrangement.differs for each in better] == named


def test_a_slow_back_would_give_more_with_a_faster_draft_model():
    slow = engine(cost=0.7)
    now = forecast(Arrangement("remote", elsewhere=Machines()), slow)
    other = faster_model(now, slow, None)
    assert (other.slow_acceptance, other.acceptance) == (0.8, pytest.approx(0.7))
    assert other.tokens_per_second > 1.1 * now.tokens_per_second


def test_one_that_is_fast_enough_needs_no_other():
    fast = engine(cost=0.2)
    assert faster_model(forecast(Arrangement("remote", elsewhere=Machines()), fast), fast, None) is None
    slow = engine(cost=0.7)
    on_a_gpu = Arrangement("remote", elsewhere=Machines(speed=4))
    assert faster_model(forecast(on_a_gpu, slow), slow, None) is None
