"""A lead, a back or an RPC worker as a child of an actor."""

import contextlib
import socket
import subprocess
import sys


class ChildError(Exception):
    """A child did not start; the message says which."""


class ChildProcess:
    """`python -m PROGRAM ARGUMENTS`; ends with this process. Its log goes to the actor's."""

    def __init__(self, program: str, *arguments: str) -> None:
        """program: lead or back."""
        self._command = [sys.executable, "-m", "fleet.child", program, *arguments]
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def stop(self, seconds: float) -> None:
        """SIGTERM, and after so many seconds SIGKILL; returns when it has ended."""
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
    """A port of this address that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
