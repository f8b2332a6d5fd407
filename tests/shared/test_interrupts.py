import signal
import subprocess
import sys

import pytest

from shared.interrupts import QuietInterrupts

INTERRUPTED = """
import signal
from shared.interrupts import QuietInterrupts

{before}
with QuietInterrupts():
    signal.raise_signal(signal.SIGINT)
    print("went on")
"""


def run(before=""):
    return subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(before=before)], capture_output=True, text=True, check=False
    )


def test_ctrl_c_ends_the_process_without_a_word():
    ended = run()
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_a_process_that_ignores_it_goes_on():
    ended = run("signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert (ended.returncode, ended.stdout) == (0, "went on\n")


def test_afterwards_it_is_as_before():
    before = signal.getsignal(signal.SIGINT)
    with QuietInterrupts():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_somebody_raised_is_the_exit_status():
    with pytest.raises(SystemExit) as ended, QuietInterrupts():
        raise KeyboardInterrupt
    assert ended.value.code == 130


def test_other_errors_pass():
    with pytest.raises(LookupError), QuietInterrupts():
        raise LookupError
