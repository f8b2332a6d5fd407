from rich.console import Console

from bench.table import build, cell

COLUMNS = {"way": ("way", ""), "speed": ("tokens/s", ".1f"), "bound": ("of bound", ".0%")}


def printed(rows):
    console = Console(width=80, record=True, file=None, quiet=True)
    with console.capture() as capture:
        console.quiet = False
        console.print(build("cell", rows, COLUMNS))
    return capture.get()


def test_a_row_has_its_values_in_their_formats():
    text = printed([{"way": "sync 4", "speed": 12.345, "bound": 0.91}])
    assert all(part in text for part in ("cell", "tokens/s", "sync 4", "12.3", "91%"))


def test_what_is_not_known_is_a_dash():
    assert cell(None, ".2f") == "-"
    assert "-" in printed([{"way": "off"}])


def test_numbers_stand_to_the_right():
    table = build("cell", [{"way": "a", "speed": 1.0}], COLUMNS)
    assert [column.justify for column in table.columns][:2] == ["left", "right"]
