"""Figures that the pages show: as tables, and as pictures in a light and a dark theme."""

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from docs.generate.blocks import table

_WIDTH, _LABELS, _BAR, _GAP, _TOP = 820, 300, 13, 12, 74
_TEXT = 'font-family="system-ui, sans-serif" font-size="13"'


@dataclass(frozen=True, slots=True)
class Figures:
    """One table of docs/generate/figures.toml.

    `drawn`: indices of the series in the picture. `largest`: the value at the right end of its axis, which
    is labeled `axis`. A value that is not a number was not measured.
    """

    title: str
    axis: str
    header: str
    series: Sequence[str]
    drawn: Sequence[int]
    largest: float
    rows: Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Theme:
    """Colors of a picture; `bars` has one for each series that is drawn."""

    text: str
    line: str
    bars: Sequence[str]


THEMES = {
    "": Theme("#1f2328", "#d1d9e0", ("#0969da", "#bf8700")),
    "-dark": Theme("#e6edf3", "#3d444d", ("#58a6ff", "#d29922")),
}
"""By the ending of a file's name."""


def read_figures() -> dict[str, Figures]:
    """All figures by name."""
    text = Path(__file__).with_name("figures.toml").read_text("utf-8")
    return {name: Figures(**values) for name, values in tomllib.loads(text).items()}


def figures_table(name: str) -> str:
    """All series as a table with two decimals."""
    figures = read_figures()[name]
    rows = [
        [row, *("" if math.isnan(each) else f"{each:.2f}" for each in values)]
        for row, values in figures.rows.items()
    ]
    return table([figures.header, *figures.series], rows)


def picture(figures: Figures, theme: Theme) -> str:
    """Horizontal bars as SVG, with a line at 1 if the axis goes beyond."""
    n = len(figures.drawn)
    height = _TOP + len(figures.rows) * (n * _BAR + _GAP) + 30
    lines = [*_head(figures, theme), *_axis(figures, theme, height), *_bars(figures, theme)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(figures.title)}" {_TEXT} fill="{theme.text}">\n'
        + "\n".join(lines)
        + "\n</svg>\n"
    )


def _x(figures: Figures, value: float) -> float:
    return round(_LABELS + value / figures.largest * (_WIDTH - _LABELS - 60), 1)


def _head(figures: Figures, theme: Theme) -> Iterator[str]:
    yield f'<text x="8" y="20" font-size="16" font-weight="600">{escape(figures.title)}</text>'
    for i, series in enumerate(figures.drawn):
        x = 8 + 330 * i
        yield f'<rect x="{x}" y="36" width="12" height="12" fill="{theme.bars[i]}"/>'
        yield f'<text x="{x + 18}" y="47">{escape(figures.series[series])}</text>'


def _axis(figures: Figures, theme: Theme, height: int) -> Iterator[str]:
    for tick in range(5):
        value = figures.largest * tick / 4
        x = _x(figures, value)
        yield f'<path d="M{x} {_TOP - 8}V{height - 26}" stroke="{theme.line}"/>'
        yield f'<text x="{x}" y="{_TOP - 12}" text-anchor="middle" font-size="11">{value:g}</text>'
    yield f'<text x="{_LABELS}" y="{height - 8}" font-size="12">{escape(figures.axis)}</text>'


def _bars(figures: Figures, theme: Theme) -> Iterator[str]:
    y = _TOP
    for row, values in figures.rows.items():
        middle = y + len(figures.drawn) * _BAR / 2 + 4
        yield f'<text x="{_LABELS - 8}" y="{middle:g}" text-anchor="end">{escape(row)}</text>'
        for i, value in enumerate(values[series] for series in figures.drawn):
            end = _x(figures, value)
            size = f'width="{end - _LABELS:g}" height="{_BAR - 2}"'
            yield f'<rect x="{_LABELS}" y="{y}" {size} fill="{theme.bars[i]}"/>'
            yield f'<text x="{end + 5:g}" y="{y + _BAR - 3}" font-size="11">{value:.2f}</text>'
            y += _BAR
        y += _GAP
