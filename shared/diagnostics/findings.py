"""The report of `doctor`: findings of three severities, and an exit status."""

import enum
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn, Protocol

from shared.exits import print_text
from shared.terminal import one_line, wrapped


class Severity(enum.Enum):
    """The severity of a finding.

    GOOD: as it should be. HINT: could be better, or is unknown. PROBLEM: prevents a speed-up.
    """

    GOOD = "ok"
    HINT = "hint"
    PROBLEM = "PROBLEM"


@dataclass(frozen=True, slots=True)
class Finding:
    """An observation in one or two sentences; hints and problems also say what to change.

    The sentences may quote a peer; they are shown as one line.
    """

    severity: Severity
    sentence: str

    def __str__(self) -> str:
        return f"{self.severity.value:>7}  {one_line(self.sentence)}"


good = partial(Finding, Severity.GOOD)
hint = partial(Finding, Severity.HINT)
problem = partial(Finding, Severity.PROBLEM)


@dataclass(slots=True)
class DoctorReport:
    """A report of findings, in the order in which they were added."""

    findings: list[Finding] = field(default_factory=list)

    def add(self, findings: Iterable[Finding]) -> None:
        self.findings += findings

    @property
    def status(self) -> int:
        return int(any(each.severity is Severity.PROBLEM for each in self.findings))

    def __str__(self) -> str:
        """Return one line for each finding, and a summary."""
        n_problems = sum(each.severity is Severity.PROBLEM for each in self.findings)
        n_hints = sum(each.severity is Severity.HINT for each in self.findings)
        if n_problems:
            summary = f"{count(n_problems, 'problem')} found."
        elif n_hints:
            summary = f"No problems, {count(n_hints, 'hint')}."
        else:
            summary = "No problems found."
        return "\n".join([*map(str, self.findings), "", summary])


def count(n: int, noun: str) -> str:
    """Return a number with a noun: `1 core`, `2 cores`."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


class Report(Protocol):
    """A report whose `str` is the text to print."""

    @property
    def status(self) -> int:
        """The exit status: 1 if there is a problem."""


def exit_with(report: Report) -> NoReturn:
    """Print the report, with lines wrapped between words on a terminal, and exit with its status."""
    text = str(report)
    print_text(wrapped(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text)
    sys.exit(report.status)
