import io

import pytest

from chat.answer import Piece
from chat.attribution import ANSI_COLORS
from chat.render import DIM, RED, RESET, Screen
from tests.chat.fakes import Terminal

FIRST, SECOND = list(ANSI_COLORS.values())[:2]


def screens(environment=(), terminal=Terminal):
    out, err = terminal(), terminal()
    return Screen(out, err, dict(environment)), out, err


def test_an_escape_sequence_split_over_tokens_is_sanitized():
    screen, out, _ = screens()
    for part in ("\x1b", "[2J", "\x1b]0;", "x\x07"):
        screen.show_piece(Piece(part))
    assert out.getvalue() == "␛[2J␛]0;x␇"


@pytest.mark.parametrize(
    ("sources", "shown"),
    [
        (["back-1", "ngram", "back-1"], f"{FIRST}x{RESET}{SECOND}x{RESET}{FIRST}x{RESET}"),
        ([f"back-{i}" for i in range(len(ANSI_COLORS) + 1)], f"{FIRST}x{RESET}"),
    ],
)
def test_a_source_keeps_its_color_and_colors_are_reused_if_there_are_more_sources(sources, shown):
    screen, out, _ = screens()
    for source in sources:
        screen.show_piece(Piece("x", source))
    assert out.getvalue().endswith(shown)


@pytest.mark.parametrize(
    ("environment", "terminal"),
    [({}, io.StringIO), ({"NO_COLOR": "1"}, Terminal), ({"TERM": "dumb"}, Terminal)],
)
def test_output_without_a_color_terminal_is_plain(environment, terminal):
    screen, out, err = screens(environment, terminal)
    screen.show_piece(Piece("Once", "back-1"))
    screen.error("Oh.")
    screen.show_legend({"back-1": 1})
    assert out.getvalue() == "Once\n"
    assert err.getvalue() == "Oh.\n  back-1: 1 accepted\n"


def test_an_empty_no_color_counts_as_unset():
    screen, _, err = screens({"NO_COLOR": ""})
    screen.note("Well.")
    assert err.getvalue() == f"{DIM}Well.{RESET}\n"


def test_errors_and_names_are_sanitized():
    screen, _, err = screens()
    screen.error("\x1b[2J")
    screen.show("\x9b")
    screen.show_legend({"\x1bback": 1})
    assert err.getvalue() == f"{RED}␛[2J{RESET}\n�\n{FIRST}  ␛back: 1 accepted{RESET}\n"


def test_the_last_line_of_an_answer_is_ended_before_a_note():
    screen, out, _ = screens()
    screen.show_piece(Piece("Once"))
    screen.note("Stopped.")
    assert out.getvalue() == "Once\n"
