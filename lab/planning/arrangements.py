"""Possible places of the draft model, and the speed of each arrangement, simulated from measurements."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, get_args

from lab.planning.measurements import (
    AcceptanceRate,
    CoreSplit,
    DrafterTimes,
    EngineTimes,
    PairTimes,
    SplitTimes,
)
from lab.simulation.cell import Cell, simulate
from lab.simulation.machine import Contention, StepTable
from lab.simulation.simulated_back import BackSpec
from lab.simulation.text import DraftSkill
from lead.engine.commands import DRAFT_MODEL, MTP, PolicyName
from shared.diagnostics.prospects import SLOW_BACK

Kind = Literal["none", "mtp", "engine", "split", "remote"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Kinds of arrangements, fewest parts first."""

_N_TOKENS = 384
_N_WARM_UP = 448
"""Until then a lead has tried drafts that do not pay a few times, and pauses them."""
_N_SEEDS = 3
_MAX, _MIN = 0.995, 0.005
"""The highest and lowest acceptance that simulated texts can have."""
_LOCAL_TRIP_S = 0.0002
"""The seconds of a round trip between two processes of one machine."""
_MARGIN = 0.02
"""An arrangement with fewer parts is preferred to another arrangement that is faster by a smaller share."""
_FASTER, _LESS_RIGHT = 4.0, 0.1
"""How many times faster than a slow draft model a suggested model is, and how much lower its acceptance."""


@dataclass(frozen=True, slots=True)
class Machines:
    """`n` equal machines beside the lead's, each with a back. speed: relative to this machine.

    differ: each machine runs a different draft model, which is equally fast and equally often right.
    """

    n: int = 1
    round_trip_s: float = 0.001
    speed: float = 1.0
    differ: bool = False


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A distribution of the models. split, elsewhere: where backs run; a forecast needs SplitTimes.

    draft_model: the draft model's name, if there are several.
    """

    kind: Kind
    split: CoreSplit | None = None
    elsewhere: "Machines | None" = None
    draft_model: str = ""

    @property
    def differs(self) -> bool:
        """True if draft models other than the measured one also draft."""
        return self.elsewhere is not None and self.elsewhere.differ

    @property
    def place(self) -> tuple[Kind, tuple[int, ...], "Machines | None"]:
        """The place where the arrangement drafts, as a key for comparison."""
        return self.kind, self.split.back_cpus if self.split else (), self.elsewhere


@dataclass(frozen=True, slots=True)
class SpeedForecast:
    """The tokens per second of one client; low, high: the range within the acceptance's confidence interval.

    A higher acceptance can be slower: the lead then drafts, although drafts hardly pay.
    """

    arrangement: Arrangement
    tokens_per_second: float
    low: float
    high: float


def arrangements(pair: PairTimes, elsewhere: Iterable[Machines]) -> list[Arrangement]:
    """Return all possible arrangements, fewest parts first."""
    drafters, name = pair.engine.drafters, pair.draft_model
    found = [Arrangement("none")]
    if MTP in drafters:
        found.append(Arrangement("mtp"))
    if DRAFT_MODEL in drafters:
        found.append(Arrangement("engine", draft_model=name))
        found += [Arrangement("split", split, draft_model=name) for split in pair.splits]
        found += [Arrangement("remote", elsewhere=each, draft_model=name) for each in elsewhere]
    return found


def forecast(arrangement: Arrangement, engine: EngineTimes, acceptance: float | None = None) -> SpeedForecast:
    """Simulate the speed of an arrangement. acceptance: the drafter's; None: the measured one."""
    if arrangement.kind == "none":
        rate = tokens_per_second(Cell(_steps(engine.steps, engine), n_tokens=_N_TOKENS), "off")
        return SpeedForecast(arrangement, rate, rate, rate)
    drafter = engine.drafters[MTP if arrangement.kind == "mtp" else DRAFT_MODEL]
    values = _acceptances(drafter.acceptance, acceptance)
    cells = (_cell(arrangement, engine, drafter, each) for each in values)
    rates = [tokens_per_second(replace(each, n_warm_up=_N_WARM_UP), "adaptive") for each in cells]
    return SpeedForecast(arrangement, rates[0], min(rates), max(rates))


def best(forecasts: Sequence[SpeedForecast]) -> SpeedForecast:
    """Return the fastest arrangement on this machine, or an earlier arrangement that is nearly as fast."""
    return _fastest([each for each in forecasts if each.arrangement.kind != "remote"])


def better_elsewhere(forecasts: Sequence[SpeedForecast]) -> list[SpeedForecast]:
    """Return the best arrangements with backs on other machines, with one draft model and with several.

    Each clearly beats the one before it, and the best one here.
    """
    found = [best(forecasts)]
    remote = sorted((each for each in forecasts if each.arrangement.kind == "remote"), key=n_machines)
    for differs in (False, True):
        minimum = found[-1].tokens_per_second * (1 + _MARGIN)
        rivals = [each for each in remote if each.arrangement.differs is differs]
        if faster := [each for each in rivals if each.tokens_per_second > minimum]:
            found.append(_fastest(faster))
    return found[1:]


def best_by_place(forecasts: Sequence[SpeedForecast]) -> list[SpeedForecast]:
    """Return the best draft model for each place: the fastest, or an earlier model that is nearly as fast."""
    places = defaultdict[Any, list[SpeedForecast]](list)
    for each in forecasts:
        if each.arrangement.draft_model and not each.arrangement.differs:
            places[each.arrangement.place].append(each)
    return [_fastest(rivals) for rivals in places.values()]


def gains_of_more(forecasts: Sequence[SpeedForecast]) -> list[tuple[SpeedForecast, SpeedForecast]]:
    """Return pairs of forecasts with backs elsewhere: each number of backs, and the next larger one
    requested.
    """
    found = defaultdict[Any, list[SpeedForecast]](list)
    for each in forecasts:
        if machines := each.arrangement.elsewhere:
            kinds = (machines.differ,) if machines.n > 1 else (False, True)
            for differ in kinds:
                found[replace(machines, n=1, differ=differ), each.arrangement.draft_model].append(each)
    return [pair for each in found.values() for pair in pairwise(sorted(each, key=n_machines))]


@dataclass(frozen=True, slots=True)
class FasterModel:
    """The speed that a back would give with a faster draft model, which takes `token_s` seconds and is right
    less often.
    """

    slow: SpeedForecast
    slow_acceptance: float
    token_s: float
    acceptance: float
    tokens_per_second: float


def faster_model(slow: SpeedForecast, engine: EngineTimes, acceptance: float | None) -> FasterModel | None:
    """Return a faster draft model to suggest; None if backs are fast enough or would gain little.

    acceptance: see `forecast`.
    """
    machines, drafter = slow.arrangement.elsewhere, engine.drafters.get(DRAFT_MODEL)
    if machines is None or drafter is None:
        return None
    now = _acceptances(drafter.acceptance, acceptance)[0]
    if now <= _LESS_RIGHT or drafter.token_s / machines.speed <= SLOW_BACK * engine.steps[1]:
        return None
    faster = replace(drafter, token_s=drafter.token_s / _FASTER)
    then = forecast(slow.arrangement, replace(engine, drafters={DRAFT_MODEL: faster}), now - _LESS_RIGHT)
    if then.tokens_per_second < slow.tokens_per_second * (1 + _MARGIN):
        return None
    token_s = faster.token_s / machines.speed
    return FasterModel(slow, now, token_s, now - _LESS_RIGHT, then.tokens_per_second)


def other_models_pay(forecasts: Sequence[SpeedForecast]) -> bool:
    """Return whether further backs gain more with different draft models than with the same model."""
    gains = {False: 1.0, True: 1.0}
    for fewer, more in gains_of_more(forecasts):
        gain, differs = more.tokens_per_second / fewer.tokens_per_second, more.arrangement.differs
        gains[differs] = max(gains[differs], gain)
    return gains[True] > gains[False] * (1 + _MARGIN)


def n_machines(forecast: SpeedForecast) -> int:
    """Return the number of machines beside the lead's."""
    return forecast.arrangement.elsewhere.n if forecast.arrangement.elsewhere else 0


def _fastest(rivals: Sequence[SpeedForecast]) -> SpeedForecast:
    """Return the fastest arrangement, or an earlier arrangement that is nearly as fast."""
    maximum = max(each.tokens_per_second for each in rivals)
    return next(each for each in rivals if each.tokens_per_second >= maximum * (1 - _MARGIN))


def _acceptances(measured: AcceptanceRate | None, given: float | None) -> list[float]:
    """Return the likeliest acceptance, then its interval's ends; about 0 if the drafter was never asked."""
    found = [given or 0.0]
    if given is None and measured is not None:
        found = [measured.value, *measured.interval()]
    return [min(max(each, _MIN), _MAX) for each in found]


def _cell(arrangement: Arrangement, engine: EngineTimes, drafter: DrafterTimes, acceptance: float) -> Cell:
    skill = DraftSkill(acceptance)
    if isinstance(split := arrangement.split, SplitTimes):
        back = BackSpec(split.token_s + drafter.outside_s, _LOCAL_TRIP_S, skill, drafter.slope)
        steps = _steps(split.steps, engine)
        contention = Contention(split.lead_factor, split.back_factor)
        return Cell(steps, (back,), n_tokens=_N_TOKENS, contention=contention)
    steps = _steps(engine.steps, engine)
    if machines := arrangement.elsewhere:
        token_s = drafter.token_s / machines.speed
        back = BackSpec(token_s, machines.round_trip_s, skill, drafter.slope)
        others = (replace(skill, number=i * machines.differ) for i in range(machines.n))
        return Cell(steps, tuple(replace(back, skill=each) for each in others), n_tokens=_N_TOKENS)
    return Cell(steps, inline=BackSpec(drafter.token_s, 0.0, skill, drafter.slope), n_tokens=_N_TOKENS)


def _steps(measured: Mapping[int, float], engine: EngineTimes) -> StepTable:
    points = tuple((n, seconds + n * engine.choose_s) for n, seconds in sorted(measured.items()))
    return StepTable("measured", points, engine.settling)


def tokens_per_second(cell: Cell, policy: PolicyName) -> float:
    """Return tokens per second: the mean of some simulated texts."""
    return statistics.fmean(simulate(replace(cell, seed=seed), policy) for seed in range(_N_SEEDS))
