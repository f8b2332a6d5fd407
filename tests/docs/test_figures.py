"""Pictures of figures are valid SVG in two themes. They show every row, and nothing outside the picture."""

import re
import xml.etree.ElementTree as ET

import pytest

from docs.generate.figures import THEMES, figures_table, picture, read_figures
from docs.generate.pages import ROOT
from shared.diagnostics.prospects import Prospect

FIGURES = read_figures()


@pytest.fixture(params=[(name, ending) for name in FIGURES for ending in THEMES], ids="".join)
def drawn(request):
    name, ending = request.param
    return FIGURES[name], ET.fromstring(picture(FIGURES[name], THEMES[ending]))  # noqa: S314 - our own


def test_a_picture_has_every_row_and_value(drawn):
    figures, root = drawn
    texts = {element.text for element in root.iterfind(".//{*}text")}
    values = {f"{values[series]:.2f}" for values in figures.rows.values() for series in figures.drawn}
    assert {*figures.rows, *values} <= texts


def test_every_bar_ends_inside_the_picture(drawn):
    _, root = drawn
    _, _, width, height = map(float, root.get("viewBox").split())
    for bar in root.iterfind(".//{*}rect"):
        assert float(bar.get("x")) + float(bar.get("width")) < width
        assert float(bar.get("y")) + float(bar.get("height")) < height


def test_a_simulated_figure_says_so():
    assert "simulated" in FIGURES["speed-up"].title


def test_a_missing_value_is_an_empty_cell():
    row = next(line for line in figures_table("speed-up").splitlines() if "2.9 ms" in line)
    assert row.split(" | ")[3] == ""


STEEP = "32B Q4_K on an M2 Ultra, 39 ms"
BACKS = {1: 4, 2: 12, 3: 3, 4: 10}
"""For each column of backs, the milliseconds of a draft token."""


def gains(low, high, least=0.0, most=1.0):
    """The least and the highest speed-up by backs for steps of `low` to `high` ms.

    least, most: bounds of a draft token's time divided by a step's time.
    """
    found = [
        values[column]
        for row, values in FIGURES["speed-up"].rows.items()
        if row != STEEP and low <= (step := float(re.search(r"([\d.]+) ms$", row)[1])) < high
        for column, milliseconds in BACKS.items()
        if least <= milliseconds / step < most
    ]
    return f"{min(found):.1f}", f"{max(found):.1f}"


def test_the_gains_that_readme_and_programs_name_are_the_simulated_ones():
    short, shorter = gains(0, 10, most=9), gains(10, 25)
    medium, long = gains(25, 100, most=0.2), gains(100, 1e9)
    table = re.findall(
        r"^\| .* ms.*: .* \| ([\d.]+) to ([\d.]+) \|", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert table == [short, shorter, gains(25, 100), long]
    fast = f"{' to '.join(medium)} for steps of at least 25 ms, and up to {gains(10, 25, most=0.2)[1]}"
    slow = f"slower back gives at most {gains(25, 100, least=0.2)[1]}"
    for prospect, said in (
        *((Prospect.SHORT, "only " + " to ".join(short)), (Prospect.LONG, "of " + " to ".join(long))),
        *((Prospect.MEDIUM, fast), (Prospect.MEDIUM, slow)),
    ):
        assert said in prospect.value
