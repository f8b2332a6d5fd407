"""Text and log on one terminal: neither breaks a line of the other, and nothing is lost at the end."""

import os
import subprocess
import sys
import threading

import pytest

from lead.engine_client.terminal_writer import (
    _MAX_HELD,
    LineOrder,
    TerminalWriter,
    shares_terminal,
    stderr_through,
)


@pytest.fixture
def order():
    return LineOrder()


def test_the_log_waits_for_the_end_of_a_line(order):
    assert order.text("The sky is ") == "The sky is "
    assert order.log("12:00 lead INFO: hm\n") == ""
    assert order.text("blue.\nAnd") == "blue.\n12:00 lead INFO: hm\nAnd"


def test_without_text_the_log_comes_at_once(order):
    assert order.log("one\n") == "one\n"
    order.text("a line\n")
    assert order.log("two\n") == "two\n"


def test_a_pause_breaks_the_line_for_what_waits(order):
    order.text("The sky")
    order.log("12:00 lead ERROR: the engine has ended\n")
    assert order.holds_log
    assert order.release() == "\n12:00 lead ERROR: the engine has ended\n"
    assert not order.holds_log
    assert order.text(" is") == " is"


def test_a_flood_of_log_lines_does_not_wait(order):
    order.text("The sky")
    shown = "".join(order.log("line\n") for _ in range(_MAX_HELD + 1))
    assert shown == "\n" + "line\n" * (_MAX_HELD + 1)


@pytest.mark.parametrize("text", ["The", "The\n"])
def test_text_begins_below_a_progress_bar(order, text):
    order.log("\r 10 %")
    assert order.text(text) == "\n" + text


class Out:
    """A file that looks like a terminal to the writer."""

    encoding = "utf-8"

    def __init__(self):
        self.written = ""
        self.may_write = threading.Event()
        self.may_write.set()

    def write(self, text):
        self.may_write.wait(60)
        self.written += text

    def flush(self):
        pass


def test_what_children_and_this_process_write_to_stderr_comes_in_order():
    out = Out()
    writer = TerminalWriter(out)
    before = os.fstat(2)
    with stderr_through(writer):
        writer.put("a text")
        writer.drain()
        os.write(2, b"from here\n")
        subprocess.run([sys.executable, "-c", "import os; os.write(2, b'from a child\\n')"], check=True)
    assert out.written == "a text\nfrom here\nfrom a child\n"
    assert os.path.samestat(os.fstat(2), before)


def test_a_terminal_that_is_gone_does_not_stop_the_log():
    class Gone(Out):
        def write(self, _text):
            raise OSError

    with stderr_through(TerminalWriter(Gone())):
        for _ in range(10):
            os.write(2, b"line\n")


def test_two_ends_of_one_terminal_are_the_same_and_a_file_is_none(tmp_path):
    master, slave = os.openpty()
    with os.fdopen(master), os.fdopen(slave, "w") as out, (tmp_path / "log").open("w") as file:
        with os.fdopen(os.dup(slave), "w") as log:
            assert shares_terminal(out, log)
        assert not shares_terminal(out, file)
