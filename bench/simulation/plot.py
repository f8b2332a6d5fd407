"""Charts of a simulation's tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.plot import new_figure, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]


def draw(rows: Rows, folder: Path) -> list[Path]:
    """One chart per part that has one; returns their paths. Raises ConfigError without matplotlib."""
    drawn = []
    for name, chart in (("gains", _gains), ("policies", _policies)):
        if part := [row for row in rows if row["part"] == name]:
            drawn.append(save(chart(part), folder, f"simulate-{name}"))
    return drawn


def _gains(rows: Rows) -> "Figure":
    """Speed-up over the round trip time, one panel per pair, one line per number of backs."""
    pairs = list(dict.fromkeys(row["pair"] for row in rows))
    figure = new_figure(4 * len(pairs), 3.5)
    most = max(row["speedup"] for row in rows)
    for i, pair in enumerate(pairs, 1):
        axes = figure.add_subplot(1, len(pairs), i)
        for n_backs in sorted({row["backs"] for row in rows}):
            line = [row for row in rows if row["pair"] == pair and row["backs"] == n_backs]
            axes.semilogx([r["rtt_ms"] for r in line], [r["speedup"] for r in line], "o-", label=f"{n_backs}")
        axes.set(title=pair, xlabel="round trip, ms", ylabel="speed-up over the lead alone")
        axes.set_ylim(0.9, 1.05 * most)
        axes.grid(alpha=0.3)
    axes.legend(title="backs")
    return figure


def _policies(rows: Rows) -> "Figure":
    """Adaptive against the best depth of the others, all cells."""
    figure = new_figure(5, 5)
    axes = figure.add_subplot()
    for steps in dict.fromkeys(row["steps"] for row in rows):
        cells = [row for row in rows if row["steps"] == steps]
        best = [max(1.0, row["sync"], row["fixed"]) for row in cells]
        axes.scatter(best, [row["adaptive"] for row in cells], s=14, label=steps)
    most = max(row["bound"] for row in rows)
    axes.plot([1, most], [1, most], color="grey", linewidth=1)
    axes.set(xlabel="best sync or fixed depth, speed-up", ylabel="adaptive, speed-up")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure
