"""A lead, a back or an RPC worker as a child of an actor: `python -m fleet.child PROGRAM …`.

The child ends when its standard input does: a replica that is killed cannot stop its lead, but its end of
the pipe closes whatever happens to it.
"""

import contextlib
import runpy
import socket
import subprocess
import sys
import threading

from shared.exits import exit_with_stdin


class ChildError(Exception):
    """A child did not start; the message says which."""


class ChildProcess:
    """`python -m PROGRAM ARGUMENTS`; ends with this process. Its log goes to the actor's."""

    def __init__(self, program: str, *arguments: str) -> None:
        self._command = [sys.executable, "-m", "fleet.child", program, *arguments]
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self, seconds: float) -> None:
        """Send SIGTERM, and SIGKILL after `seconds`; returns when it has ended."""
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    threading.Thread(target=exit_with_stdin, name="stdin", daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
