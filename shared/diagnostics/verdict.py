"""What `--check` and `doctor` come to: something to read, and an exit status."""

import sys
from typing import NoReturn, Protocol


class Verdict(Protocol):
    """Its text is for a person."""

    @property
    def status(self) -> int:
        """The exit status: 1 if there is a problem."""


def end_with(verdict: Verdict) -> NoReturn:
    """Tell it and end the program."""
    sys.stdout.write(f"{verdict}\n")
    sys.exit(verdict.status)
