"""Whole sessions on an emulated terminal, with its screen during answers and after them."""

import io
from functools import partial
from itertools import count

import pyte
import pytest

from chat.attribution import ANSI_COLORS
from chat.terminal_screen import LiveRegion, TerminalLine, TerminalScreen, terminal_size
from tests.chat.fakes import Session, answers, end_events, event, is_away, streams, text_event


class EmulatedTerminal(io.StringIO):
    """Displays a program's output. Newlines arrive as a terminal's driver sends them."""

    def __init__(self, columns=40, rows=12):
        super().__init__()
        self.screen = pyte.HistoryScreen(columns, rows, history=1000, ratio=0.5)
        self._stream = pyte.Stream(self.screen)

    def isatty(self):
        return True

    def write(self, text):
        self._stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    def size(self):
        return self.screen.columns, self.screen.lines

    @property
    def rows(self):
        """All rows, including rows that have scrolled away, without blank rows at the end."""
        past = ["".join(row[i].data for i in range(self.screen.columns)) for row in self.screen.history.top]
        return "\n".join(row.rstrip() for row in [*past, *self.screen.display]).rstrip("\n").split("\n")

    def getvalue(self):
        return "\n".join(self.rows) + "\n"


TALE = (
    "# Tale\n\nOnce **upon** a time\nthere was a `back`.\n\n- one\n- two\n\n```python\nn = 1\n```\n\nThe end."
)


class TerminalSession(Session):
    """A session with a terminal's screen. `clock` decides which drawings are left out."""

    def __init__(self, *replies, columns=40, rows=12, clock=lambda: 0.0, environment=None, **options):
        super().__init__(*replies, terminal=lambda: EmulatedTerminal(columns, rows), **options)
        self._environment = environment or {"TERM": "xterm"}
        self._clock = clock

    def new_screen(self):
        return TerminalScreen(
            self.screen,
            self.screen,
            self._environment,
            status=lambda answer, _: f"{answer.stats.n_tokens} so far",
            with_summary=True,
            size=self.screen.size,
            clock=self._clock,
        )


def every_token():
    """A clock on which it is always time to draw."""
    return partial(next, count())


def letters(text):
    """A stream with a token for each letter."""
    return streams(*(text_event(letter) for letter in text), *end_events(len(text)))


TALE_SHOWN = """\
> Tell me.

Tale

Once upon a time
there was a back.

 • one
 • two

  n = 1

The end.

{n} tokens · 10.0 tokens/s

> ^D
"""


@pytest.mark.parametrize("clock", [lambda: 0.0, every_token()])
@pytest.mark.parametrize("rows", [5, 40])
def test_an_answer_is_rendered_alike_at_any_speed_and_terminal_height(clock, rows):
    session = TerminalSession(letters(TALE), clock=clock, rows=rows)
    assert session.type("Tell me.") == TALE_SHOWN.format(n=len(TALE))


def test_a_status_line_is_shown_below_an_unfinished_answer():
    seen = []

    def look():
        seen.append(session.screen.getvalue())
        return len(seen)

    session = TerminalSession(letters("Hi *you*"), clock=look)
    session.type("Hi")
    assert any(screen.endswith("> Hi\n\nHi you\n\n8 so far\n") for screen in seen)
    assert "so far" not in session.screen.getvalue()


def test_the_status_line_is_shown_before_the_first_token():
    seen = []
    session = TerminalSession(
        streams(KeyboardInterrupt()), clock=lambda: seen.append(session.screen.getvalue()) or 0
    )
    assert session.type("Hi").startswith("> Hi\nStopped before the answer began.")
    assert seen[-1].endswith("> Hi\n\n0 so far\n")


def test_each_attempt_leaves_the_screen_before_the_next():
    session = TerminalSession(is_away, is_away, answers("Hello."), columns=150)
    screen = session.type("Hi")
    assert "so far" not in screen
    assert screen.endswith(
        "Trying again in 2 s. Press Ctrl-C to give up.\n\nHello.\n\n1 token · 10.0 tokens/s\n\n> ^D\n"
    )


def test_accepted_words_are_colored_in_rendered_markdown():
    session = TerminalSession(
        answers("**Once", (" upon**", "attic"), ("\n", "attic"), ("\ntime", "ngram")), rows=24
    )
    session.type("Hi")
    cells = {
        cell.data: (cell.fg, cell.bold)
        for row in session.screen.screen.buffer.values()
        for cell in row.values()
    }
    rows = session.screen.rows
    assert rows[4:7] == ["Once upon", "", "time"]
    row = session.screen.screen.buffer[4]
    assert [(row[i].fg, row[i].bold) for i in (0, 5)] == [("default", True), ("green", True)]
    assert session.screen.screen.buffer[6][0].fg == "cyan"
    assert cells["■"][0] in ANSI_COLORS


def test_markdown_is_rendered_without_colors_under_no_color():
    session = TerminalSession(
        answers("**a**", ("b", "attic")), rows=24, environment={"NO_COLOR": "1", "TERM": "xterm"}
    )
    session.type("Hi")
    row = session.screen.screen.buffer[4]
    expected = [("a", "default", True), ("b", "default", False)]
    assert [(row[i].data, row[i].fg, row[i].bold) for i in (0, 1)] == expected


def test_reasoning_is_shown_before_the_answer():
    thoughts = [event({"choices": [{"delta": {"reasoning_content": text}}]}) for text in ("Hm, ", "well.")]
    session = TerminalSession(streams(*thoughts, text_event("Yes."), *end_events(3)))
    assert session.type("Hi").startswith("> Hi\n\nHm, well.\n\nYes.\n\n3 tokens")


def test_a_comparison_shows_the_answer_once():
    session = TerminalSession(letters("Once"), letters("Once"), columns=60)
    assert session.type(":compare Hi") == (
        "> :compare Hi\n\nOnce\n\nAsking again without speculation ...\n                  tokens  "
        "tokens/s  accepted\nwith speculation       4      10.0         -\nwithout                "
        "4      10.0         -\nNo drafts were used. No back is connected, or drafts were\n"
        "not worth verifying. The texts are identical.\n> ^D\n"
    )


def test_all_tokens_of_a_chunk_are_drawn_at_once():
    seen = []
    session = TerminalSession(
        streams(text_event("Once", " upon"), *end_events()),
        clock=lambda: seen.append(session.screen.getvalue()) or len(seen),
    )
    session.type("Hi")
    assert not any("Once\n" in screen for screen in seen)
    assert any("Once upon\n" in screen for screen in seen)


def test_an_exported_columns_variable_is_ignored(monkeypatch):
    monkeypatch.setenv("COLUMNS", "7")
    assert terminal_size()[0] != 7


def lines(*texts):
    return [TerminalLine(text, len(text)) for text in texts]


@pytest.fixture
def terminal():
    return EmulatedTerminal(columns=10, rows=4)


@pytest.fixture
def live(terminal):
    return LiveRegion(terminal, terminal.size)


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
