"""Text goes to a pipe as it is, and to a terminal in color and without control characters."""

import io

import pytest

from lead.generate.text_output import TextOutput
from lead.generation.assembler import TextToken

TOKENS = [TextToken(1, "plain", None), TextToken(2, "\x1b[2Jdrafted", "local"), TextToken(3, "", "local")]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def written(out):
    TextOutput(out).write_tokens(TOKENS)
    return out.getvalue()


def test_a_pipe_gets_the_text_as_it_is():
    assert written(io.StringIO()) == "plain\x1b[2Jdrafted"


def test_a_terminal_gets_accepted_tokens_in_colour():
    assert written(Terminal()) == "plain\x1b[32m\u241b[2Jdrafted\x1b[0m"


def test_colour_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert written(Terminal()) == "plain\u241b[2Jdrafted"


def test_characters_that_an_encoding_lacks_are_replaced():
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    TextOutput(out).write("Hé")
    out.flush()
    assert out.buffer.getvalue() == b"H?"
