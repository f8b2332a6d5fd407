"""What `bench leads --calibrate` measured of two leads and two backs, simulated.

How useful the drafts are is taken from one lead with one back: with the acceptance that makes the simulation
as fast as that was, two leads are simulated.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import leads
from bench.simulation.calibration import Calibration
from bench.simulation.exact_fleet import ExactFleet
from bench.simulation.fleet_spec import FleetSpec
from shared.errors import ConfigError

_CASES = {leads.NONE: (0, 1), leads.TWO: (2, 1), leads.ONE: (1, 2), leads.MESH: (2, 2)}
"""(backs, leads of each back)."""
_N_SEEDS = 3
_N_HALVINGS = 6
_WARM_UP_S, _SECONDS = 20.0, 60.0


def validate(path: Path) -> list[dict[str, Any]]:
    """A row for each measured case: tokens per second of both leads, measured and predicted.

    Raises ConfigError.
    """
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        calibration = Calibration.of_json(result["calibration"])
        measured = {row["backs"]: float(row["tokens_per_second"]) for row in result["rows"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: not a result of `bench leads --calibrate --json`: {error!r}") from error
    acceptance = fitted_acceptance(calibration)
    return [_row(case, measured, _predicted(calibration, acceptance, 2, *_CASES[case])) for case in measured]


def fitted_acceptance(calibration: Calibration) -> float:
    """With which one lead with one back is as fast as it was, by halving the interval."""
    low, high = 0.02, 0.98
    for _ in range(_N_HALVINGS):
        middle = (low + high) / 2
        is_slower = _predicted(calibration, middle, 1, 1, 1) < calibration.with_back
        low, high = (middle, high) if is_slower else (low, middle)
    return (low + high) / 2


def _row(case: str, measured: Mapping[str, float], predicted: float) -> dict[str, Any]:
    return {
        "backs": case,
        "measured": measured[case],
        "predicted": predicted,
        "ratio": predicted / measured[case],
    }


def _predicted(
    calibration: Calibration, acceptance: float, n_leads: int, n_backs: int, leads_per_back: int
) -> float:
    """Tokens per second of leads with a client each; the mean over some texts."""
    spec = FleetSpec(calibration.steps, calibration.back, n_leads, n_backs, leads_per_back, 1, (acceptance,))
    outcomes = [
        ExactFleet(spec, (1,) * n_leads, seed=seed, contention=calibration.contention).run(
            _WARM_UP_S, _SECONDS
        )
        for seed in range(_N_SEEDS)
    ]
    return sum(outcome.tokens_per_second for outcome in outcomes) / len(outcomes)
