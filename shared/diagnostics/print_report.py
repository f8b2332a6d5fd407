"""Print a report of `--check` or `doctor`, and exit with its status."""

import sys
from typing import NoReturn, Protocol

from shared.exits import print_text
from shared.terminal import sanitize


class Report(Protocol):
    """`str` of it is the text to print."""

    @property
    def status(self) -> int:
        """The exit status: 1 if there is a problem."""


def exit_with(report: Report) -> NoReturn:
    """Print it and exit. Whatever it quotes of peers and files cannot control the terminal."""
    print_text(sanitize(str(report)))
    sys.exit(report.status)
