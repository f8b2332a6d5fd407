"""What a simulated fleet consists of, and what came of it."""

from dataclasses import dataclass

from lead.simulation.simulated_back import BackSpec
from lead.simulation.step_table import StepTable


@dataclass(frozen=True, slots=True)
class FleetSpec:
    """`n_leads` equal leads of `n_slots` slots, `n_backs` equal backs.

    Each back has `leads_per_back` leads at the same time (`back --lead A --lead B`). `acceptances`: of the
    texts of the first lead, the second, … and again from the front.
    """

    steps: StepTable
    back: BackSpec
    n_leads: int
    n_backs: int
    leads_per_back: int = 1
    n_slots: int = 4
    acceptances: tuple[float, ...] = (0.75,)

    def acceptance(self, lead: int) -> float:
        """Of this lead's texts."""
        return self.acceptances[lead % len(self.acceptances)]

    def leads_of(self, back: int) -> list[int]:
        """The leads of a back to begin with: neighbours share few of theirs."""
        n = min(self.leads_per_back, self.n_leads)
        stride = max(1, self.n_leads // n)
        return [(back + i * stride) % self.n_leads for i in range(n)]


@dataclass(frozen=True, slots=True)
class FleetOutcome:
    """Sums over `seconds`. `n_drafted`: tokens that backs decoded; `n_accepted`: of which the text has these.

    `back_seconds`: of computing, of all backs; `sequence_seconds`: of generating, of all sequences. `speeds`:
    tokens per second of each lead, where they were counted.
    """

    seconds: float
    n_tokens: float
    n_drafted: float
    n_accepted: float
    back_seconds: float
    sequence_seconds: float
    speeds: tuple[float, ...] = ()

    @property
    def tokens_per_second(self) -> float:
        """Of all leads together."""
        return self.n_tokens / self.seconds

    @property
    def answer_speed(self) -> float:
        """Tokens per second of one sequence, on average."""
        return self.n_tokens / self.sequence_seconds if self.sequence_seconds else 0.0

    @property
    def waste(self) -> float:
        """The share of what backs decoded that no text has."""
        return 1 - self.n_accepted / self.n_drafted if self.n_drafted else 0.0

    def busy(self, n_backs: int) -> float:
        """The share of their time in which backs compute."""
        return self.back_seconds / (self.seconds * n_backs) if n_backs else 0.0
