"""A lead, a back or an RPC worker as a child of an actor, whose end it does not outlive."""

import socket
import subprocess

from shared.lifeline import lifeline
from shared.python_child import child_command, child_environment


class ChildError(Exception):
    """A child did not start; the message says which."""


class ChildProcess:
    """`python -m PROGRAM ARGUMENTS`; ends with this process. Its log goes to the actor's."""

    def __init__(self, program: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            child_command(program, *arguments),
            pass_fds=[lifeline()],
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

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


def free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
