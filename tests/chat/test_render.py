"""Nothing that acts on a terminal passes; colour goes where a terminal shows it."""

import io

import pytest

from chat.render import DIM, RED, RESET, Screen
from chat.source_colours import ANSI_COLOURS
from tests.chat.fakes import Terminal

FIRST, SECOND = list(ANSI_COLOURS.values())[:2]


def screens(environment=(), terminal=Terminal):
    out, err = terminal(), terminal()
    return Screen(out, err, dict(environment)), out, err


def test_a_sequence_split_over_tokens_is_harmless():
    screen, out, _ = screens()
    for part in ("\x1b", "[2J", "\x1b]0;", "x\x07"):
        screen.token(part, None)
    assert out.getvalue() == "␛[2J␛]0;x␇"


def test_a_drafted_token_has_its_sources_colour():
    screen, out, _ = screens()
    screen.token("Once", None)
    screen.token(" upon", "back-1")
    assert out.getvalue() == f"Once{FIRST} upon{RESET}"


def test_a_source_keeps_its_colour():
    screen, out, _ = screens()
    for source in ("back-1", "ngram", "back-1"):
        screen.token("x", source)
    assert out.getvalue() == f"{FIRST}x{RESET}{SECOND}x{RESET}{FIRST}x{RESET}"


def test_more_sources_than_colours_share():
    screen, out, _ = screens()
    for i in range(len(ANSI_COLOURS) + 1):
        screen.token("x", f"back-{i}")
    assert out.getvalue().endswith(f"{FIRST}x{RESET}")


@pytest.mark.parametrize(
    ("environment", "terminal"),
    [({}, io.StringIO), ({"NO_COLOR": "1"}, Terminal), ({"TERM": "dumb"}, Terminal)],
)
def test_without_a_colour_terminal_all_is_plain(environment, terminal):
    screen, out, err = screens(environment, terminal)
    screen.token("Once", "back-1")
    screen.error("Oh.")
    screen.show_legend({"back-1": 1})
    assert out.getvalue() == "Once\n"
    assert err.getvalue() == "Oh.\n  back-1: 1 accepted\n"


def test_an_empty_no_color_counts_as_unset():
    screen, _, err = screens({"NO_COLOR": ""})
    screen.note("Well.")
    assert err.getvalue() == f"{DIM}Well.{RESET}\n"


def test_errors_and_found_things_are_sanitised_too():
    screen, _, err = screens()
    screen.error("\x1b[2J")
    screen.show("\x9b")
    screen.show_legend({"\x1bback": 1})
    assert err.getvalue() == f"{RED}␛[2J{RESET}\n�\n{FIRST}  ␛back: 1 accepted{RESET}\n"


def test_an_answers_last_line_is_ended_before_anything_else_is_said():
    screen, out, _ = screens()
    screen.token("Once", None)
    screen.note("Stopped.")
    assert out.getvalue() == "Once\n"


def test_a_line_that_has_ended_is_not_ended_twice():
    screen, out, _ = screens()
    screen.token("Once\n", None)
    screen.end_answer()
    assert out.getvalue() == "Once\n"


def test_an_empty_answer_is_an_empty_line():
    screen, out, _ = screens()
    screen.end_answer(empty=True)
    assert out.getvalue() == "\n"
