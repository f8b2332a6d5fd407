"""Charts of the bench's rows, as SVG. Needs matplotlib: the extra `bench` of this project."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]


def plot_speed(rows: Rows, folder: Path) -> list[Path]:
    """One chart per configuration: tokens/s of every way, with its spread."""
    return [
        save(
            _bars(configuration, [row for row in rows if row["configuration"] == configuration]), folder, name
        )
        for configuration in dict.fromkeys(row["configuration"] for row in rows)
        if (name := f"speed-{_slug(configuration)}")
    ]


def plot_lines(
    rows: Rows, folder: Path, *, name: str, x: str, y: str, group: str, labels: tuple[str, str]
) -> Path:
    """One line for each value of `group`; `labels` of the axes."""
    figure = new_figure(7, 4)
    axes = figure.subplots()
    for value in dict.fromkeys(row[group] for row in rows):
        points = [(row[x], row[y]) for row in rows if row[group] == value and row[y] is not None]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", label=str(value))
    axes.set(xlabel=labels[0], ylabel=labels[1], ylim=(0, None))
    if axes.lines:
        axes.legend()
    return save(figure, folder, name)


def _bars(title: str, rows: Rows) -> "Figure":
    figure = new_figure(8, 1 + 0.3 * len(rows))
    axes = figure.subplots()
    speeds = [row["tokens_per_second"] for row in rows]
    spread = [
        [row["tokens_per_second"] - row["low"] for row in rows],
        [row["high"] - row["tokens_per_second"] for row in rows],
    ]
    axes.barh([row["way"] for row in rows], speeds, xerr=spread, capsize=3)
    axes.invert_yaxis()
    axes.set(title=title, xlabel="tokens/s, median of repeats; least and most")
    return figure


def new_figure(width: float, height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise ConfigError("--plot needs matplotlib: pip install 'llama-duo[bench]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: "Figure", folder: Path, name: str) -> Path:
    path = folder / f"{name}.svg"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    except OSError as error:
        raise ConfigError(f"--plot: {error}") from error
    return path


def _slug(text: str) -> str:
    return "-".join("".join(c if c.isalnum() or c == "." else " " for c in text).split())
