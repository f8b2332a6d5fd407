"""One cell of a table: a lead with its backs and a client, simulated for a while."""

import functools
from dataclasses import dataclass, field

from lab.simulation.clock import Link, VirtualClock
from lab.simulation.machine import HOST, LEAD, Contention, HostTime, SharedMachine, StepTable
from lab.simulation.simulated_back import GREEDY, BackSpec, SimulatedBack
from lab.simulation.simulated_lead import LeadEvent, SimulatedLead
from lab.simulation.text import Text
from lead.backs.assignment import division
from lead.engine.commands import PolicyName
from lead.engine.events import Committed, Finished
from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants
from shared.drafting.drafter import DrafterMessage
from shared.protocol import BranchPart, Close, Extend, Open, Tune


@dataclass(frozen=True, slots=True)
class Cell:
    """A client requests texts of `n_text` tokens, one after the other, until it has `n_tokens`.

    `inline`: a draft model in the lead's engine. `seed`: the seed of the texts and of the times of steps.
    `contention`: given if the backs run on the lead's machine. `n_warm_up`: tokens before the clock starts;
    speculation keeps what it learns from them.
    """

    steps: StepTable
    backs: tuple[BackSpec, ...] = ()
    n_tokens: int = 1024
    n_text: int = 256
    inline: BackSpec | None = None
    seed: int = 0
    contention: Contention | None = None
    constants: SpeculationConstants = DEFAULTS
    host: HostTime = HOST
    n_warm_up: int = 64


def simulate(cell: Cell, policy: PolicyName) -> float:
    """Return the tokens per second after the warm-up."""
    simulation = _Simulation(cell, policy)
    began, n_before = simulation.run(cell.n_warm_up)
    ended, n_tokens = simulation.run(cell.n_warm_up + cell.n_tokens)
    return (n_tokens - n_before) / (ended - began)


@functools.lru_cache(maxsize=64)
def _text(n_tokens: int, seed: int, number: int) -> Text:
    """Return the text with this number, the same for every policy."""
    return Text(n_tokens, seed * 1_000_003 + number)


@dataclass
class _Simulation:
    cell: Cell
    policy: PolicyName
    clock: VirtualClock = field(default_factory=VirtualClock)
    texts: dict[int, Text] = field(default_factory=dict)

    def __post_init__(self) -> None:
        contention = self.cell.contention
        self._machine = SharedMachine(self.clock, contention) if contention else None
        self._lead = SimulatedLead(
            self.clock,
            self.cell.steps,
            self._on_event,
            self.texts,
            policy=self.policy,
            constants=self.cell.constants,
            seed=self.cell.seed,
            inline=self.cell.inline,
            compute=functools.partial(self._machine.run, LEAD) if self._machine else None,
            host=self.cell.host,
        )
        parts = division(len(self.cell.backs))
        self._links: list[tuple[Link[DrafterMessage], BranchPart | None]] = [
            (self._connect(f"back-{i}", spec), part)
            for i, (spec, part) in enumerate(zip(self.cell.backs, parts, strict=True))
        ]
        self._lead.connect([f"back-{i}" for i in range(len(self.cell.backs))])
        self.clock.after(0.0, self._ask)

    def run(self, n_tokens: int) -> tuple[float, int]:
        """Run until at least this many tokens are committed; return the time and the number of tokens."""
        self.clock.run(lambda: self._lead.stats.n_committed >= n_tokens)
        return self.clock.now, self._lead.stats.n_committed

    def _connect(self, name: str, spec: BackSpec) -> Link[DrafterMessage]:
        drafts = Link(self.clock, spec.rtt_s / 2, spec.message_s, self._lead.post)
        back = SimulatedBack(
            name,
            spec,
            self.clock,
            drafts.send,
            self.texts,
            n_slots=1,
            compute=functools.partial(self._machine.run, name) if self._machine else None,
        )
        return Link(self.clock, spec.rtt_s / 2, spec.message_s, back.receive)

    def _ask(self) -> None:
        key = len(self.texts)
        self.texts[key] = _text(self.cell.n_text, self.cell.seed, key)
        self._lead.submit(str(key), key)
        for link, part in self._links:
            link.send(Open(sequence=str(key), sampling=GREEDY, tokens=[key], part=part))

    def _on_event(self, event: LeadEvent) -> None:
        match event:
            case Committed():
                for link, part in self._links:
                    link.send(
                        Extend(sequence=event.sequence, start=event.start, tokens=event.tokens, part=part)
                    )
            case Finished():
                self._send(Close(sequence=event.sequence, reason="ended"))
                self._ask()
            case Tune():
                self._send(event)

    def _send(self, message: DrafterMessage) -> None:
        for link, _ in self._links:
            link.send(message)
