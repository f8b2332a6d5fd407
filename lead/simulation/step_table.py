"""T(n): how long the simulated lead's steps take."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from shared.errors import ConfigError


@dataclass(frozen=True, slots=True)
class StepTable:
    """`points`: (n, seconds), n ascending from 1; straight lines between them and beyond the last."""

    name: str
    points: tuple[tuple[int, float], ...]

    @classmethod
    def of_ratios(cls, name: str, first_ms: float, *ratios: float) -> Self:
        """T(1) in milliseconds, and T(n) / T(1) for n = 1, 2, …"""
        return cls(name, tuple((n, first_ms * ratio / 1000) for n, ratio in enumerate(ratios, 1)))

    @classmethod
    def of_milliseconds(cls, name: str, table: Mapping[int, float]) -> Self:
        """Raises ConfigError unless n = 1 is there and all numbers make sense."""
        if 1 not in table or not all(n > 0 and 0 < ms < math.inf for n, ms in table.items()):
            raise ConfigError(
                f"{name}: a table of step times needs n = 1, and times above 0 ms for all n > 0"
            )
        return cls(name, tuple((n, ms / 1000) for n, ms in sorted(table.items())))

    @classmethod
    def read(cls, path: Path) -> Self:
        """A JSON object n → milliseconds, alone or as `step_ms` (as in `GET /v1/speculation`).

        Raises ConfigError.
        """
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            table = table.get("step_ms", table)
            numbers = {int(n): float(ms) for n, ms in table.items()}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path}: not a JSON object of step times in ms by n: {error}") from error
        return cls.of_milliseconds(path.stem, numbers)

    @property
    def first(self) -> float:
        """T(1) in seconds."""
        return self.points[0][1]

    def seconds(self, n: int) -> float:
        """T(n)."""
        points = self.points
        if len(points) == 1:
            return points[0][1]
        right = next((i for i, (m, _) in enumerate(points) if m >= n), len(points) - 1)
        (low, before), (high, after) = points[max(0, right - 1)], points[max(1, right)]
        if n > high:
            return after + max(0.0, (after - before) / (high - low)) * (n - high)
        return before + (after - before) * (n - low) / (high - low)
