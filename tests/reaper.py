"""`python -m tests.reaper COMMAND…`: run a command, and then end all that it has started and left running.

Ctrl-C ends the workers of a parallel run before they have stopped the programs of their tests. Some of these
are in sessions of their own. On Linux a process whose parent has ended becomes a child of this process.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys

import psutil

PR_SET_CHILD_SUBREAPER = 36
END_SECONDS = 30


def run(command):
    """Return the exit status of `command`. It gets Ctrl-C from the terminal, and other signals from here."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # until there is something to pass it on to
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    process = subprocess.Popen(command)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: process.send_signal(received))
    status = reap_until(process.pid)
    end_what_is_left()
    return status if status >= 0 else 128 - status


def reap_until(wanted):
    """Wait for a child. Meanwhile reap processes that came here because their parents have ended."""
    while True:
        pid, status = os.wait()
        if pid == wanted:
            return os.waitstatus_to_exitcode(status)


def end_what_is_left():
    while left := psutil.Process().children(recursive=True):
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended by itself
                sys.stderr.write(f"left running, and ended now: {' '.join(process.cmdline())[:200]}\n")
                process.kill()
        psutil.wait_procs(left, timeout=END_SECONDS)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
