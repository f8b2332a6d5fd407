"""What a simulation of this machine's leads and backs needs to know, measured on it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from bench.cluster import Cores
from bench.step_time import step_times
from lead.engine.commands import Load, LoadDraft
from lead.planning.core_splits import CoreSplit
from lead.planning.plan_program import measure_split
from lead.simulation.shared_machine import Contention
from lead.simulation.simulated_back import BackSpec
from lead.simulation.step_table import StepTable
from shared.cpus import parse_cpus
from shared.errors import ConfigError
from shared.settings.model_options import ModelOptions

_WIDTHS = (1, 2, 4)
_LOCAL_TRIP_S = 0.0002


@dataclass(frozen=True, slots=True)
class Calibration:
    """Of leads that share cores, and backs that share others; times in milliseconds, each alone.

    `alone`, `with_back`: tokens per second of one lead that answers without a back, and with one.
    `acceptance`: how often the back's next token was right. `lead_factor`, `back_factor`: how many times as
    long it takes while the other computes.
    """

    step_ms: dict[int, float]
    draft_ms: float
    draft_slope: float
    acceptance: float
    alone: float
    with_back: float
    lead_factor: float
    back_factor: float

    @classmethod
    def of_json(cls, record: dict[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError."""
        steps = {int(n): float(ms) for n, ms in record["step_ms"].items()}
        numbers = {name: float(value) for name, value in record.items() if name != "step_ms"}
        return cls(step_ms=steps, **numbers)

    def as_json(self) -> dict[str, Any]:
        """For a report."""
        return asdict(self)

    @property
    def steps(self) -> StepTable:
        """T(n), such that one lead alone is as fast as it was."""
        alone_ms, model_ms = 1000 / self.alone, self.step_ms[1]
        beside_ms, factor = max(0.0, alone_ms - model_ms), min(1.0, alone_ms / model_ms)
        return StepTable.of_milliseconds(
            "measured", {n: factor * ms + beside_ms for n, ms in self.step_ms.items()}
        )

    @property
    def back(self) -> BackSpec:
        """A back of this machine."""
        return BackSpec(self.draft_ms / 1000, _LOCAL_TRIP_S, slope=self.draft_slope)

    @property
    def contention(self) -> Contention:
        """All leads on one core, all backs on another."""
        return Contention(self.lead_factor, self.back_factor, one_core_each=True)


@dataclass(frozen=True, slots=True)
class OneLead:
    """What one lead did that answered alone, then with a back: see `Calibration`."""

    alone: float
    with_back: float
    acceptance: float


def calibrate(model: Path, draft: Path, cores: Cores, one_lead: OneLead) -> Calibration:
    """Time both models while nothing else runs. Raises ConfigError, ModelLoadError."""
    split = CoreSplit(tuple(parse_cpus(cores.lead)), tuple(parse_cpus(cores.back)))
    options = ModelOptions(ctx_size=2048, parallel=1, threads=1)
    load = Load(
        model=model.absolute(),
        options=options,
        depth=0,
        draft=LoadDraft(model=draft.absolute(), options=options, n_most=16),
    )
    times = measure_split(split, load, is_offloaded=False)
    widths = step_times(draft, cores.back, _WIDTHS, 9)
    slope = max(0.0, (widths[_WIDTHS[-1]] / widths[1] - 1) / (_WIDTHS[-1] - 1))
    return Calibration(
        {n: 1000 * seconds for n, seconds in times.steps.items()},
        1000 * times.token_s,
        slope,
        one_lead.acceptance,
        one_lead.alone,
        one_lead.with_back,
        times.lead_factor,
        times.back_factor,
    )


def acceptance_of(http: httpx.Client) -> float:
    """How often the next token of the connected backs was right, as the lead has counted."""
    sources = http.get("/v1/speculation").json()["planner"]["sources"].values()
    n_scored = sum(source["n_scored"] for source in sources)
    if not n_scored:
        raise ConfigError("no draft of a back arrived in time to be compared with the text")
    return float(sum(source["n_right"] for source in sources) / n_scored)
