"""Ctrl-C and standard output of programs, each in a process of its own."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shared.exits import quiet_interrupts, raise_interrupts
from tests.python_runs import run_python

INTERRUPTED = """
import signal
from shared.exits import quiet_interrupts

{before}
with quiet_interrupts():
    signal.raise_signal(signal.SIGINT)
    print("went on")
"""


def interrupted(before=""):
    return run_python("-c", INTERRUPTED.format(before=before))


def test_ctrl_c_ends_the_process_without_a_word():
    ended = interrupted()
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_a_process_that_ignores_it_goes_on():
    ended = interrupted("signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert (ended.returncode, ended.stdout) == (0, "went on\n")


def test_afterwards_it_is_as_before():
    before = signal.getsignal(signal.SIGINT)
    with quiet_interrupts():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_somebody_raised_is_the_exit_status():
    with pytest.raises(SystemExit) as ended, quiet_interrupts():
        raise KeyboardInterrupt
    assert ended.value.code == 130


def test_a_program_that_has_something_to_undo_gets_an_exception():
    with quiet_interrupts():
        raise_interrupts()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


PROGRAM = "from shared.exits import print_text; print_text('the result')"


def run(stdout, program=PROGRAM, stderr=subprocess.PIPE):
    return run_python("-c", program, capture_output=False, stdout=stdout, stderr=stderr)


def test_it_is_written():
    done = run(subprocess.PIPE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the result\n", "")


def test_a_reader_that_is_gone_is_no_error():
    with subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE) as reader:
        reader.wait()
        done = run(reader.stdin)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
def test_a_full_disk_is_told_in_a_sentence():
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = run(full)
    assert (done.returncode, done.stderr) == (1, "the result cannot be written: No space left on device\n")


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
def test_progress_that_cannot_be_written_ends_nothing():
    program = "from shared.exits import print_text, say; say('at work'); print_text('the result')"
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = run(subprocess.PIPE, program, stderr=full)
    assert done.stdout == "the result\n"
