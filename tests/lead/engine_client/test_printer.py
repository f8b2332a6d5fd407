import io
import queue
import threading

import pytest

from lead.engine.events import Committed, Finished, Started
from lead.engine_client.printer import _MAX_HELD_CHARACTERS, _MAX_WAITING, Printer, times_of
from lead.engine_client.sequences import Sequences
from lead.engine_client.terminal_writer import _MAX_WAITING as _MAX_PIECES
from lead.engine_client.terminal_writer import TerminalWriter
from shared.errors import UnavailableError
from tests.toy_engine import submit


class Screen(io.StringIO):
    """A terminal that delivers its output piece by piece. `stop` makes it block as Ctrl-S does."""

    encoding = "utf-8"

    def __init__(self):
        super().__init__()
        self.terminal = True
        self._written = queue.SimpleQueue()
        self._shown = ""
        self._going = threading.Event()
        self._going.set()
        self.reached = threading.Event()

    def isatty(self):
        return self.terminal

    def stop(self):
        self._going.clear()

    def go_on(self):
        self._going.set()

    def write(self, text):
        self.reached.set()
        self._going.wait(60)
        text.encode(self.encoding)
        self._written.put(text)
        return len(text)

    def all_lines(self, n):
        """The next `n` lines."""
        while self._shown.count("\n") < n:
            self._shown += self._written.get(timeout=60)
        *lines, self._shown = self._shown.split("\n", n)
        return lines

    def line(self):
        """The next line that does not show times."""
        while _is_of_times(line := self.all_lines(1)[0]):
            pass
        return line + "\n"


def _is_of_times(line):
    return line.removeprefix("\x1b[2m").startswith("[")


class Stage:
    """Sequences that a printer watches."""

    def __init__(self, vocabulary, screen, mode):
        self.vocabulary = vocabulary
        self.sequences = Sequences(clock=lambda: 0.75)
        self.sequences.observe(Printer(vocabulary, mode, TerminalWriter(screen)))

    def start(self, *, private=False):
        sequence = self.sequences.create(submit(tokens=[1, 2]), private=private)
        self.sequences.apply(Started(sequence=sequence.id, n_cached=1), 1.0)
        return sequence

    def say(self, sequence, text, now=2.0, **figures):
        tokens = self.vocabulary.tokenize(text, add_special=False, parse_special=False)
        step = Committed(sequence=sequence.id, start=len(sequence.tokens), tokens=tokens, **figures)
        self.sequences.apply(step, now)
        return len(tokens)

    def end(self, sequence):
        self.sequences.apply(Finished(sequence=sequence.id, reason="stop"), 9.0)


@pytest.fixture
def screen(monkeypatch):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    return Screen()


@pytest.fixture
def new_stage(vocabulary, screen):
    return lambda mode: Stage(vocabulary, screen, mode)


def drafted(n_sources, n_accepted):
    return {"sources": ["desk"] * n_sources, "n_accepted": n_accepted}


@pytest.mark.parametrize(
    ("said", "is_terminal", "lines"),
    [
        pytest.param(
            [("Once", {}), (" upon", drafted(2, 1))], True, ["Once\x1b[32m upon\x1b[0m"], id="green"
        ),
        pytest.param([("Once", drafted(1, 1))], False, ["Once"], id="without color where no terminal is"),
        pytest.param([("\x1b[2J\x07", {})], True, ["\u241b[2J\u2407"], id="without control characters"),
        pytest.param(
            *([(" upon\n a", drafted(9, 9))], True, ["\x1b[32m upon\x1b[0m", "\x1b[32m a\x1b[0m"]),
            id="with a color for each line",
        ),
    ],
)
def test_accepted_tokens_are_shown(new_stage, screen, said, is_terminal, lines):
    screen.terminal = is_terminal
    stage = new_stage("accepted")
    sequence = stage.start()
    for text, figures in said:
        stage.say(sequence, text, **figures)
    stage.end(sequence)
    assert [screen.line() for _ in lines] == [f"{line}\n" for line in lines]


def test_rejected_tokens_are_red_before_the_one_that_replaced_them(new_stage, screen):
    stage = new_stage("all")
    sequence = stage.start()
    rejected = stage.vocabulary.tokenize(" never", add_special=False, parse_special=False)
    stage.say(sequence, "Once", sources=["desk"] * len(rejected), rejected=rejected)
    stage.end(sequence)
    assert screen.line() == "\x1b[31m never\x1b[0mOnce\n"


def test_of_two_answers_at_once_each_is_shown_as_a_whole(new_stage, screen):
    stage = new_stage("accepted")
    first, second, third = stage.start(), stage.start(), stage.start()
    stage.say(first, "one")
    stage.say(second, "two")
    stage.say(third, "three")
    stage.say(first, " one")
    stage.say(second, " two")
    stage.end(second)
    stage.end(first)
    stage.say(third, " three")
    stage.end(third)
    lines = screen.all_lines(6)
    assert lines[::2] == ["one one", "two two", "three three"]
    assert all(map(_is_of_times, lines[1::2]))


def test_an_answer_gives_way_if_too_many_wait(new_stage, screen):
    stage = new_stage("accepted")
    long = stage.start()
    stage.say(long, "long")
    for _ in range(_MAX_WAITING):
        short = stage.start()
        stage.say(short, "short")
        stage.end(short)
    last = stage.start()
    stage.say(last, "last")
    stage.end(last)
    stage.end(long)
    assert [screen.line() for _ in range(3)] == ["long…\n", "short\n", "short\n"]


def test_an_answer_that_waits_keeps_a_limited_text(new_stage, screen):
    stage = new_stage("accepted")
    shown, waiting = stage.start(), stage.start()
    stage.say(shown, "one")
    for _ in range(_MAX_HELD_CHARACTERS + 10):
        stage.say(waiting, "a")
    stage.end(shown)
    stage.end(waiting)
    screen.line()
    assert len(screen.line()) == _MAX_HELD_CHARACTERS + 1


def test_an_answer_that_has_given_way_once_keeps_text_the_next_time(new_stage, screen, monkeypatch):
    monkeypatch.setattr("lead.engine_client.printer._MAX_WAITING", 1)
    monkeypatch.setattr("lead.engine_client.printer._MAX_HELD_CHARACTERS", 3)
    stage = new_stage("accepted")
    first, second = stage.start(), stage.start()
    for sequence, text in ((first, "one"), (second, "two"), (stage.start(), "three")):
        stage.say(sequence, text)  # with the third, the first gives way; with a fourth, the second
    stage.say(stage.start(), "four")
    stage.say(second, " more")
    for sequence in list(stage.sequences):
        stage.end(sequence)
    assert {"two…\n", " more\n"} <= {screen.line() for _ in range(5)}


def test_the_times_of_an_answer_add_up(new_stage, screen, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    stage = new_stage("accepted")
    sequence = stage.start()
    n_first = stage.say(sequence, "Once", now=2.0)
    n_more = stage.say(sequence, " upon", sources=["desk"] * 4, n_accepted=1, rejected=[7, 8, 9], now=2.5)
    stage.end(sequence)
    assert screen.all_lines(2)[1] == (
        f"[{n_first + n_more} tokens, {n_more / 0.5:.1f} tokens/s, drafted 4, accepted 1; "
        "first token 1.25 s (waiting 0.25, prompt 1.00) + 0.50 = 1.75 s]"
    )


def test_a_failure_is_said_with_the_times(new_stage, screen):
    stage = new_stage("accepted")
    sequence = stage.start()
    stage.say(sequence, "Once")
    stage.sequences.fail(sequence, UnavailableError("the engine has died"))
    assert "; failed: the engine has died]" in screen.all_lines(2)[1]
    assert "no drafts" in times_of(sequence)


@pytest.mark.parametrize("mode", ["accepted", "all"])
def test_the_text_of_a_private_answer_is_not_shown_and_hides_no_other(new_stage, screen, mode):
    stage = new_stage(mode)
    secret, other = stage.start(private=True), stage.start()
    stage.say(secret, "secret")
    stage.say(other, "open")
    stage.end(other)
    assert screen.line() == "open\n"
    stage.end(secret)
    assert all(map(_is_of_times, screen.all_lines(2)))


def test_a_character_that_the_terminal_lacks_does_not_end_the_show(new_stage, screen):
    screen.encoding = "ascii"
    stage = new_stage("accepted")
    for text in ("\N{OWL}", "owl"):
        sequence = stage.start()
        stage.say(sequence, text)
        stage.end(sequence)
    assert (screen.line(), screen.line()) == ("?\n", "owl\n")


def test_a_stopped_terminal_delays_no_answer_and_misses_some_text(new_stage, screen):
    screen.stop()
    stage = new_stage("accepted")
    sequence = stage.start()
    stage.say(sequence, "a")
    assert screen.reached.wait(60)
    for _ in range(2 * _MAX_PIECES):
        stage.say(sequence, "a")
    screen.go_on()
    assert [screen._written.get(timeout=60) for _ in range(1 + _MAX_PIECES)] == ["a"] * (1 + _MAX_PIECES)


def test_nothing_is_shown_where_nothing_is_wanted(new_stage, screen):
    stage = new_stage("none")
    sequence = stage.start()
    stage.say(sequence, "Once")
    stage.end(sequence)
    assert not screen.reached.is_set()
