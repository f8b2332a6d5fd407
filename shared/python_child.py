"""Starts child processes, asks them to end, and kills them if they do not.

No Python process of ours imports anything from the working directory. `python -m shared.python_child FD
MODULE …` ends with its parent (`shared.lifeline`), and so does `… FD -- PROGRAM …`.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from signal import Signals
from typing import Any

from shared.lifeline import end_with, lifeline
from shared.search_paths import without_working_directory

KILL_SECONDS = 10.0
"""The time that a killed process may take to end, because it must release its memory."""
_PROGRAM = "--"


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module as a program."""
    return [sys.executable, "-P", "-m", module, *arguments]


def child_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module as a `ChildProcess`."""
    return python_command("shared.python_child", str(lifeline()), module, *arguments)


def program_command(*command: str) -> list[str]:
    """Return the command that runs any program as a `ChildProcess`; on Linux it ends with this
    process, too.
    """
    return child_command(_PROGRAM, *command)


def child_environment() -> dict[str, str]:
    """Return the environment of this process, without variables that make a child import from the working
    directory.
    """
    return without_working_directory(os.environ)


class ChildProcess(subprocess.Popen[bytes]):
    """A process that does not outlive this one."""

    def __init__(self, command: Sequence[str], descriptors: Iterable[int] = (), **options: Any) -> None:
        """Start a `child_command` or `program_command`, which inherits `descriptors`; raises OSError.

        options: further parameters of `Popen`. By default it has `child_environment`, and no standard input.
        """
        usual: dict[str, Any] = {"stdin": subprocess.DEVNULL, "env": child_environment()}
        super().__init__(command, pass_fds=[*descriptors, lifeline()], **usual | options)

    @property
    def is_running(self) -> bool:
        return self.poll() is None

    def tell_to_end(self) -> None:
        self.send_signal(Signals.SIGCONT)  # one that is stopped hears nothing
        self.terminate()

    def stop(self, seconds: float) -> int | None:
        """Ask the child to end, and wait; parameter and result as in `end_within`."""
        self.tell_to_end()
        return self.end_within(seconds)

    def end_within(self, seconds: float) -> int | None:
        """Wait for the child, and kill it after `seconds`; return its status, None if it cannot be killed."""
        for limit in (seconds, KILL_SECONDS):
            with suppress(subprocess.TimeoutExpired):
                return self.wait(limit)
            self.kill()
        return None


def main() -> None:
    """Run a module as `python -m` does, or execute a program."""
    end_with(int(sys.argv[1]))
    if sys.argv[2] == _PROGRAM:
        os.execvp(sys.argv[3], sys.argv[3:])  # noqa: S606 - what our caller has said
    del sys.argv[:2]
    import runpy  # noqa: PLC0415 - the parent may be gone already

    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
