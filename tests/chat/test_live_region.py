"""Lines are redrawn in place, except those that have scrolled away."""

import io

import pytest

from chat.live_region import LiveRegion, TerminalLine
from tests.chat.screens import EmulatedTerminal


def lines(*texts):
    return [TerminalLine(text, len(text)) for text in texts]


@pytest.fixture
def terminal():
    return EmulatedTerminal(columns=10, rows=4)


@pytest.fixture
def live(terminal):
    return LiveRegion(terminal, terminal.size)


def test_lines_replace_the_previous_ones(live, terminal):
    live.draw(lines("one", "status"))
    live.draw(lines("one two", "three", "status"))
    assert terminal.rows == ["one two", "three", "status"]


def test_superfluous_lines_are_erased(live, terminal):
    live.draw(lines("one", "two", "status"))
    live.draw(lines("one"))
    assert terminal.rows == ["one"]


def test_frozen_lines_are_kept(live, terminal):
    live.draw(lines("one"))
    live.freeze()
    live.draw(lines("two"))
    assert terminal.rows == ["one", "two"]


def test_rows_that_have_scrolled_away_are_not_drawn_twice(live, terminal):
    for n in range(1, 8):
        live.draw(lines(*map(str, range(n)), "status"))
    live.draw(lines(*map(str, range(7))))
    assert terminal.rows == list("0123456")


def test_changes_in_rows_that_have_scrolled_away_are_not_drawn(live, terminal):
    live.draw(lines(*"abcdef"))
    live.draw(lines(*"ABCDEF"))
    assert terminal.rows == list("abcDEF")


def test_rows_that_have_scrolled_away_are_not_erased(live, terminal):
    live.draw(lines(*"abcdef"))
    live.draw(lines("a"))
    live.draw(lines("a"))
    assert terminal.rows == list("abc")


def test_a_line_that_is_too_wide_is_clipped(live, terminal):
    live.draw([TerminalLine("0123456789abc", 9), TerminalLine("status", 6)])
    live.draw(lines("so"))
    assert terminal.rows == ["so"]


def test_lines_that_the_terminal_rewrapped_are_counted():
    size = (10, 4)
    out = io.StringIO()
    live = LiveRegion(out, lambda: size)
    live.draw(lines("0123456789"))
    size = (5, 4)
    live.draw(lines("01234"))
    assert "\x1b[2A" in out.getvalue()


def test_only_changed_lines_are_drawn():
    out = io.StringIO()
    live = LiveRegion(out, lambda: (10, 10))
    live.draw(lines("one", "two"))
    live.draw(lines("one", "three"))
    assert out.getvalue().count("one") == 1


def test_the_cursor_is_shown_again_when_all_lines_are_frozen():
    out = io.StringIO()
    live = LiveRegion(out, lambda: (10, 10))
    live.draw(lines("one"))
    live.freeze()
    assert out.getvalue().rindex("\x1b[?25h") > out.getvalue().rindex("\x1b[?25l")
