"""Where the draft model may run, and how fast each such arrangement will be: simulated from measurements."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, get_args

from lead.engine.commands import DRAFT_MODEL, MTP, PolicyName
from lead.planning.measurements import (
    AcceptanceRate,
    CoreSplit,
    DrafterTimes,
    EngineTimes,
    PairTimes,
    SplitTimes,
)
from lead.simulation.cell import Cell, simulate
from lead.simulation.machine import Contention, StepTable
from lead.simulation.simulated_back import BackSpec
from lead.simulation.text import DraftSkill

Kind = Literal["none", "mtp", "engine", "split", "remote"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Those with the fewest parts first."""

_N_TOKENS = 512
_N_SEEDS = 3
_MOST, _LEAST = 0.995, 0.005
"""What the simulated texts can have as acceptance."""
_LOCAL_TRIP_S = 0.0002
"""Between two processes of one machine."""
_MARGIN = 0.02
"""An arrangement with fewer parts is preferred to one that is faster by less."""


@dataclass(frozen=True, slots=True)
class Machines:
    """`n` equal ones beside the lead's, each with a back. `speed`: relative to this machine's."""

    n: int = 1
    round_trip_s: float = 0.001
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Arrangement:
    """One way to run the models. `split`, `elsewhere`: where backs run; a forecast needs SplitTimes.

    `draft_model` names what drafts, where there are several.
    """

    kind: Kind
    split: CoreSplit | None = None
    elsewhere: "Machines | None" = None
    draft_model: str = ""

    @property
    def place(self) -> tuple[Kind, tuple[int, ...], "Machines | None"]:
        """Where it drafts."""
        return self.kind, self.split.back_cpus if self.split else (), self.elsewhere


@dataclass(frozen=True, slots=True)
class SpeedForecast:
    """Tokens per second of one client; `low` and `high` at the ends of the acceptance's interval."""

    arrangement: Arrangement
    tokens_per_second: float
    low: float
    high: float


def arrangements(pair: PairTimes, elsewhere: Iterable[Machines]) -> list[Arrangement]:
    """All that are possible, those with the fewest parts first."""
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
    """`acceptance` of the drafter: None for what was measured."""
    if arrangement.kind == "none":
        rate = _rate(Cell(_steps(engine.steps, engine.choose_s), n_tokens=_N_TOKENS), "off")
        return SpeedForecast(arrangement, rate, rate, rate)
    drafter = engine.drafters[MTP if arrangement.kind == "mtp" else DRAFT_MODEL]
    values = _acceptances(drafter.acceptance, acceptance)
    rates = {each: _rate(_cell(arrangement, engine, drafter, each), "adaptive") for each in set(values)}
    middle, low, high = (rates[each] for each in values)
    return SpeedForecast(arrangement, middle, low, high)


def best(forecasts: Sequence[SpeedForecast]) -> SpeedForecast:
    """The fastest on this machine, or an earlier one that is nearly as fast."""
    return _fastest([each for each in forecasts if each.arrangement.kind != "remote"])


def better_elsewhere(forecasts: Sequence[SpeedForecast]) -> SpeedForecast | None:
    """With backs on other machines, as few as do, if that is faster than the best on this one."""
    remote = sorted((each for each in forecasts if each.arrangement.elsewhere), key=n_machines)
    least = best(forecasts).tokens_per_second * (1 + _MARGIN)
    faster = [each for each in remote if each.tokens_per_second > least]
    return _fastest(faster) if faster else None


def best_by_place(forecasts: Sequence[SpeedForecast]) -> list[SpeedForecast]:
    """The draft model for each place: the fastest, or an earlier one that is nearly as fast."""
    places = defaultdict[Any, list[SpeedForecast]](list)
    for each in forecasts:
        if each.arrangement.draft_model:
            places[each.arrangement.place].append(each)
    return [_fastest(rivals) for rivals in places.values()]


def gains_of_more(forecasts: Sequence[SpeedForecast]) -> list[tuple[SpeedForecast, SpeedForecast]]:
    """Of equal backs elsewhere, each number with the next one that was asked for."""
    alike = defaultdict[Any, list[SpeedForecast]](list)
    for each in forecasts:
        if machines := each.arrangement.elsewhere:
            alike[replace(machines, n=1), each.arrangement.draft_model].append(each)
    return [pair for each in alike.values() for pair in pairwise(sorted(each, key=n_machines))]


def n_machines(forecast: SpeedForecast) -> int:
    """Beside the lead's."""
    return forecast.arrangement.elsewhere.n if forecast.arrangement.elsewhere else 0


def _fastest(rivals: Sequence[SpeedForecast]) -> SpeedForecast:
    """The fastest, or an earlier one that is nearly as fast."""
    most = max(each.tokens_per_second for each in rivals)
    return next(each for each in rivals if each.tokens_per_second >= most * (1 - _MARGIN))


def _acceptances(measured: AcceptanceRate | None, given: float | None) -> tuple[float, float, float]:
    """The likeliest, the least and the most. A drafter that was never asked counts as useless."""
    if given is not None or measured is None:
        low = middle = high = given or 0.0
    else:
        middle, (low, high) = measured.value, measured.interval()
    return _possible(middle), _possible(low), _possible(high)


def _possible(acceptance: float) -> float:
    return min(max(acceptance, _LEAST), _MOST)


def _cell(arrangement: Arrangement, engine: EngineTimes, drafter: DrafterTimes, acceptance: float) -> Cell:
    skill = DraftSkill(acceptance)
    if isinstance(split := arrangement.split, SplitTimes):
        back = BackSpec(split.token_s + drafter.outside_s, _LOCAL_TRIP_S, skill, drafter.slope)
        steps = _steps(split.steps, engine.choose_s)
        contention = Contention(split.lead_factor, split.back_factor)
        return Cell(steps, (back,), n_tokens=_N_TOKENS, contention=contention)
    steps = _steps(engine.steps, engine.choose_s)
    if machines := arrangement.elsewhere:
        token_s = drafter.token_s / machines.speed
        back = BackSpec(token_s, machines.round_trip_s, skill, drafter.slope)
        return Cell(steps, (back,) * machines.n, n_tokens=_N_TOKENS)
    return Cell(steps, inline=BackSpec(drafter.token_s, 0.0, skill, drafter.slope), n_tokens=_N_TOKENS)


def _steps(measured: Mapping[int, float], choose_s: float) -> StepTable:
    return StepTable("measured", tuple((n, s + n * choose_s) for n, s in sorted(measured.items())))


def _rate(cell: Cell, policy: PolicyName) -> float:
    """Tokens per second, the mean of some texts."""
    outcomes = [simulate(replace(cell, seed=seed), policy) for seed in range(_N_SEEDS)]
    return sum(outcome.tokens_per_second for outcome in outcomes) / len(outcomes)
