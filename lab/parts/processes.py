"""Starts the real programs, waits for lines of their logs, and stops them by their process id."""

import os
import re
import secrets
import signal
import socket
import subprocess
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import psutil

from shared.errors import ConfigError
from shared.python_child import ChildProcess, child_command, program_command

_MEGABYTE = 1e6
_STOP_SECONDS = 60.0
_PATIENCE_SECONDS = 240.0
"""Longer than any call takes on a busy machine."""


class ProgramError(ConfigError):
    """A program ended, or did not log the expected line in time; the message has its last lines."""


class Program:
    """A `lead`, `back` or `chat` as a child process. A context manager: leaving it stops the process."""

    def __init__(self, name: str, *arguments: str, command: Sequence[str] = ()) -> None:
        """Start `python -m name arguments`; its log (stderr) is kept and can be waited for.

        command: starts another program instead; `name` is then only used in messages.
        """
        self.name = name
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        started = program_command(*command) if command else child_command(name)
        self.process = ChildProcess([*started, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log(self) -> str:
        """The whole log so far."""
        with self._news:
            return "\n".join(self._lines)

    def wait_for(self, pattern: str, seconds: float = _PATIENCE_SECONDS, *, since: int = 0) -> re.Match[str]:
        """Wait for a line of the log, from line `since` on, that matches `pattern`; raises ProgramError after
        `seconds`.
        """
        expression = re.compile(pattern)
        with self._news:
            self._news.wait_for(lambda: self._ended or self._search(expression, since), seconds)
            if match := self._search(expression, since):
                return match
        state = "ended" if self._ended else f"has not logged it for {seconds:.0f} s"
        raise ProgramError(f"waiting for {pattern!r}, {self.name} {state}:\n" + "\n".join(self._lines[-20:]))

    def n_lines(self) -> int:
        """Return the number of logged lines, for `wait_for(since=…)`."""
        with self._news:
            return len(self._lines)

    def lines(self, since: int) -> list[str]:
        """Return the logged lines from line `since` on."""
        with self._news:
            return self._lines[since:]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this process only."""
        self.process.send_signal(number)

    def stop(self) -> int:
        """Terminate the process, and kill it if that takes too long; returns its exit status."""
        self.process.stop(_STOP_SECONDS)
        self._reader.join()
        return self.process.returncode

    def _search(self, expression: re.Pattern[str], since: int) -> re.Match[str] | None:
        matches = (expression.search(line) for line in self._lines[since:])
        return next((match for match in matches if match), None)

    def _read(self) -> None:
        assert self.process.stderr
        with self.process.stderr as stream:
            for line in stream:
                with self._news:
                    self._lines.append(line.decode(errors="replace").rstrip())
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()


def start_lead(
    *arguments: str, seconds: float = _PATIENCE_SECONDS, command: Sequence[str] = ()
) -> tuple[Program, str]:
    """Start a lead, wait until it has loaded its model, and return it and its URL.

    The port is a free one unless `arguments` name one. command: see `Program`.
    """
    lead = Program("lead", "--port", "0", *arguments, command=command)
    try:
        url = lead.wait_for(r"listening on (http://\S+),", seconds).group(1)
        lead.wait_for(r" ready: \d+ slots", seconds)  # not the ready line of an encoder
    except BaseException:
        lead.stop()
        raise
    return lead, url


def start_back(
    url: str, *arguments: str, seconds: float = _PATIENCE_SECONDS, command: Sequence[str] = ()
) -> Program:
    """Start a back and wait until the lead at `url` has welcomed it; `command` as in `Program`."""
    back = Program("back", "--lead", url, *arguments, command=command)
    try:
        back.wait_for(r"drafting for ", seconds)
    except BaseException:
        back.stop()
        raise
    return back


def run_in_foreground(command: Sequence[str]) -> int:
    """Run `command` in the foreground of the terminal (standard input); return its status as `Popen` does.

    Ctrl-C then does not reach this process group: this program, `make`, and the programs that we run. If the
    command is stopped (Ctrl-Z), this process group stops, too, and continues together with it.
    """
    child = ChildProcess(command, stdin=None, process_group=0)
    try:
        while child.returncode is None:
            os.tcsetpgrp(0, child.pid)
            os.killpg(child.pid, signal.SIGCONT)  # it may have asked for the terminal before it had it
            _, status = os.waitpid(child.pid, os.WUNTRACED)
            _take_back_terminal()
            if os.WIFSTOPPED(status):
                os.killpg(0, signal.SIGTSTP)
            else:
                child.returncode = os.waitstatus_to_exitcode(status)
    finally:
        _take_back_terminal()
    return child.returncode


def _take_back_terminal() -> None:
    """Make this process the terminal's foreground again.

    SIGTTOU is blocked meanwhile, because it would stop a background process that takes the terminal.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    os.tcsetpgrp(0, os.getpgrp())
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def split_cores(cores: Sequence[int]) -> tuple[str, str]:
    """Return the lead's and the back's cores, in the syntax of `--cpus`. The back gets the last core."""
    ordered = sorted(cores)
    lead, back = (ordered[:-1], ordered[-1:]) if len(ordered) > 1 else (ordered, ordered)
    return ",".join(map(str, lead)), ",".join(map(str, back))


def free_port() -> int:
    """Return a free port below the ephemeral ports of Linux, so that no other program gets it by chance."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@dataclass(slots=True)
class Usage:
    """The resources of one or more processes."""

    megabytes: float = 0.0
    """The resident memory."""
    n_descriptors: int = 0
    n_processes: int = 0

    def __str__(self) -> str:
        return f"{self.megabytes:.1f}, {self.n_descriptors}, {self.n_processes}"


def usage_of(pid: int) -> dict[str, Usage]:
    """Return resources of a process ("front") and its children, by the modules that they run."""
    found: defaultdict[str, Usage] = defaultdict(Usage)
    try:
        front = psutil.Process(pid)
        for process in (front, *front.children(recursive=True)):
            usage = found["front" if process == front else _module(process.cmdline())]
            usage.megabytes += process.memory_info().rss / _MEGABYTE
            usage.n_descriptors += process.num_fds()
            usage.n_processes += 1
    except psutil.NoSuchProcess:
        return {}
    return found


def _module(command: list[str]) -> str:
    """Return the module that this command runs, else its program."""
    if "shared.python_child" in command[:-2]:
        return command[command.index("shared.python_child") + 2]
    if "-m" in command[:-1]:
        return command[command.index("-m") + 1]
    return command[0].rpartition("/")[2] if command else "ended"
