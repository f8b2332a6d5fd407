"""The configurations of `bench speed`: every combination of the values chosen for each axis."""

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from bench.options import listed

DEPTHS = (1, 2, 3, 4, 5, 6, 8)


@dataclass(frozen=True, slots=True)
class Configuration:
    """One cell of the grid; all policies run in each."""

    target: str
    cost: str
    """The cost of a draft step relative to a step of the target; "shipped": the shipped draft model."""
    temperature: float
    n_backs: int
    rtt_ms: float

    def __str__(self) -> str:
        parts = [self.target, f"draft {self.cost}", f"T={self.temperature:g}"]
        if self.n_backs != 1:
            parts.append(f"{self.n_backs} backs")
        if self.rtt_ms:
            parts.append(f"{self.rtt_ms:g} ms")
        return ", ".join(parts)


def add_options(parser: argparse.ArgumentParser) -> None:
    """One option per axis."""
    parser.add_argument("--targets", type=listed(str), default=["0.4G:f16"], help="size:type, …")
    parser.add_argument(
        "--draft-costs",
        type=listed(_cost),
        default=["0.02", "0.1", "0.3"],
        help='cost of a draft step relative to the target\'s, or "shipped"',
    )
    parser.add_argument("--temperatures", type=listed(float), default=[0.0])
    parser.add_argument("--backs", type=listed(int), default=[1], help="numbers of backs")
    parser.add_argument(
        "--rtt-ms", type=listed(float), default=[0.0], help="round-trip times between lead and back"
    )
    parser.add_argument("--policies", type=listed(str), default=["sync", "fixed", "adaptive"])
    parser.add_argument("--depths", type=listed(int), default=list(DEPTHS), help="depths of sync and fixed")
    parser.add_argument(
        "--full", action="store_true", help="temperatures 0, 1 with 0, 1, 2 backs, 0, 2, 20 ms away"
    )


def configurations(arguments: argparse.Namespace) -> Iterator[Configuration]:
    """All cells; without a back, options of the back are not varied."""
    temperatures, backs, rtts = arguments.temperatures, arguments.backs, arguments.rtt_ms
    if arguments.full:
        temperatures, backs, rtts = [0.0, 1.0], [0, 1, 2], [0.0, 2.0, 20.0]
    for target, cost, temperature, n_backs, rtt_ms in itertools.product(
        arguments.targets, arguments.draft_costs, temperatures, backs, rtts
    ):
        first = cost == arguments.draft_costs[0] and rtt_ms == rtts[0]
        if n_backs or first:
            yield Configuration(target, cost, temperature, n_backs, rtt_ms)


def _cost(text: str) -> str:
    if text != "shipped" and not 0 < float(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither shipped nor a share between 0 and 1")
    return text
