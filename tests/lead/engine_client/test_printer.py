"""The lead's screen shows one answer at a time, marks accepted tokens, and delays no answer."""

import io
import queue
import threading

import pytest

from lead.engine.events import Committed, Finished, Started
from lead.engine_client.printer import _MAX_WAITING, Printer
from lead.engine_client.sequences import Sequences
from tests.toy_engine import submit


class Screen(io.StringIO):
    """A terminal that hands over what is written, piece by piece; `stop` makes it block as Ctrl-S does."""

    encoding = "utf-8"

    def __init__(self):
        super().__init__()
        self.terminal = True
        self._written = queue.SimpleQueue()
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

    def line(self):
        """What stands in the line that is ended next."""
        shown = ""
        while not shown.endswith("\n"):
            shown += self._written.get(timeout=60)
        return shown


class Stage:
    """Sequences that a printer watches."""

    def __init__(self, vocabulary, screen, mode):
        self.vocabulary = vocabulary
        self.sequences = Sequences()
        self.sequences.observe(Printer(vocabulary, mode, screen))

    def start(self, *, private=False):
        sequence = self.sequences.create(submit(tokens=[1, 2]), private=private)
        self.sequences.apply(Started(sequence=sequence.id, n_cached=1), 1.0)
        return sequence

    def say(self, sequence, text, now=2.0, **figures):
        tokens = self.vocabulary.tokenize(text, add_special=False, parse_special=False)
        step = Committed(sequence=sequence.id, start=len(sequence.tokens), tokens=tokens, **figures)
        self.sequences.apply(step, now)

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


def test_accepted_tokens_are_green(new_stage, screen):
    stage = new_stage("accepted")
    sequence = stage.start()
    stage.say(sequence, "Once")
    stage.say(sequence, " upon", sources=["desk"] * 2, n_accepted=1, rejected=[7])
    stage.end(sequence)
    assert screen.line() == "Once\x1b[32m upon\x1b[0m\n"


def test_rejected_tokens_are_red_before_the_one_that_replaced_them(new_stage, screen):
    stage = new_stage("all")
    sequence = stage.start()
    rejected = stage.vocabulary.tokenize(" never", add_special=False, parse_special=False)
    stage.say(sequence, "Once", sources=["desk"] * len(rejected), rejected=rejected)
    stage.end(sequence)
    assert screen.line() == "\x1b[31m never\x1b[0mOnce\n"


def test_without_a_terminal_there_is_no_color(vocabulary, screen):
    screen.terminal = False
    stage = Stage(vocabulary, screen, "accepted")
    sequence = stage.start()
    stage.say(sequence, "Once", sources=["desk"], n_accepted=1)
    stage.end(sequence)
    assert screen.line() == "Once\n"


def test_control_characters_do_not_reach_the_terminal(new_stage, screen):
    stage = new_stage("accepted")
    sequence = stage.start()
    stage.say(sequence, "\x1b[2J\x07")
    stage.end(sequence)
    assert screen.line() == "\u241b[2J\u2407\n"


def test_the_screen_follows_one_answer_until_it_ends(new_stage, screen):
    stage = new_stage("accepted")
    first, second = stage.start(), stage.start()
    stage.say(first, "one")
    stage.say(second, "two")
    stage.say(first, " one")
    stage.end(first)
    stage.say(second, "three")
    stage.end(second)
    assert (screen.line(), screen.line()) == ("one one\n", "three\n")


@pytest.mark.parametrize("mode", ["accepted", "all"])
def test_a_private_answer_is_not_shown_and_hides_no_other(new_stage, screen, mode):
    stage = new_stage(mode)
    secret, other = stage.start(private=True), stage.start()
    stage.say(secret, "secret")
    stage.say(other, "open")
    stage.say(secret, "secret")
    stage.end(secret)
    stage.end(other)
    assert screen.line() == "open\n"


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
    for _ in range(2 * _MAX_WAITING):
        stage.say(sequence, "a")
    screen.go_on()
    assert [screen._written.get(timeout=60) for _ in range(1 + _MAX_WAITING)] == ["a"] * (1 + _MAX_WAITING)


def test_nothing_is_shown_where_nothing_is_wanted(new_stage, screen):
    stage = new_stage("none")
    sequence = stage.start()
    stage.say(sequence, "Once")
    stage.end(sequence)
    assert not screen.reached.is_set()
