"""Pictures of figures are valid SVG, in two themes, with every row and nothing outside."""

import xml.etree.ElementTree as ET

import pytest

from docs.generate.figures import THEMES, figures_table, picture, read_figures

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
