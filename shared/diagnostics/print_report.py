"""Print a report of `--check` or `doctor`, and exit with its status."""

import sys
from typing import NoReturn, Protocol


class Report(Protocol):
    """`str` of it is the text to print."""

    @property
    def status(self) -> int:
        """The exit status: 1 if there is a problem."""


def exit_with(report: Report) -> NoReturn:
    """Print it and exit."""
    sys.stdout.write(f"{report}\n")
    sys.exit(report.status)
