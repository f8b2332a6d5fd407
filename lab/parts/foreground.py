"""Runs a child in the foreground of the terminal, as a shell does, so that Ctrl-C reaches only the child.

Otherwise Ctrl-C would also reach every process of our process group: this one, `make`, and the programs that
we run.
"""

import os
import signal
from collections.abc import Sequence

from shared.python_child import ChildProcess


def run_in_foreground(command: Sequence[str], terminal: int = 0) -> int:
    """Run `command` in the foreground of `terminal`, a descriptor, until it ends; returns its status as
    `Popen` does.

    If the command is stopped (Ctrl-Z), this process group stops, too, and continues together with it.
    """
    child = ChildProcess(command, stdin=None, process_group=0)
    try:
        while child.returncode is None:
            os.tcsetpgrp(terminal, child.pid)
            os.killpg(child.pid, signal.SIGCONT)  # it may have asked for the terminal before it had it
            _, status = os.waitpid(child.pid, os.WUNTRACED)
            _take_back(terminal)
            if os.WIFSTOPPED(status):
                os.killpg(0, signal.SIGTSTP)
            else:
                child.returncode = os.waitstatus_to_exitcode(status)
    finally:
        _take_back(terminal)
    return child.returncode


def _take_back(terminal: int) -> None:
    """Make this process the terminal's foreground again.

    SIGTTOU is blocked meanwhile, because it would stop a background process that takes the terminal.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    os.tcsetpgrp(terminal, os.getpgrp())
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
