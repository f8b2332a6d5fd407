"""What a doctor found: sentences of three weights, and an exit status."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field


class Weight(enum.Enum):
    """GOOD: as it should be. HINT: could be better, or is not known yet. PROBLEM: costs the speed-up."""

    GOOD = "ok"
    HINT = "hint"
    PROBLEM = "PROBLEM"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is so, and for hints and problems what to change, in one sentence or two."""

    weight: Weight
    sentence: str

    def __str__(self) -> str:
        return f"{self.weight.value:>7}  {self.sentence}"


def good(sentence: str) -> Finding:
    """See Weight.GOOD."""
    return Finding(Weight.GOOD, sentence)


def hint(sentence: str) -> Finding:
    """See Weight.HINT."""
    return Finding(Weight.HINT, sentence)


def problem(sentence: str) -> Finding:
    """See Weight.PROBLEM."""
    return Finding(Weight.PROBLEM, sentence)


@dataclass(slots=True)
class Diagnosis:
    """Findings in the order in which they were made."""

    findings: list[Finding] = field(default_factory=list)

    def add(self, findings: Iterable[Finding]) -> None:
        """Append all of them."""
        self.findings += findings

    @property
    def status(self) -> int:
        """The exit status: 1 if there is a problem."""
        return int(any(each.weight is Weight.PROBLEM for each in self.findings))

    def __str__(self) -> str:
        """For a person: one line for each finding, and a last one that sums up."""
        n_problems = sum(each.weight is Weight.PROBLEM for each in self.findings)
        n_hints = sum(each.weight is Weight.HINT for each in self.findings)
        if n_problems:
            verdict = f"{count(n_problems, 'problem')} between you and a speed-up."
        elif n_hints:
            verdict = f"No problem, {count(n_hints, 'hint')}."
        else:
            verdict = "All is well."
        return "\n".join([*map(str, self.findings), "", verdict])


def count(n: int, noun: str) -> str:
    """`1 core`, `2 cores`."""
    return f"{n} {noun}{'' if n == 1 else 's'}"
