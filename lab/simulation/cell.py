"""A cell of a table: a lead with its backs and clients, simulated for a while."""

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

_N_WARM_UP = 64
"""Tokens per client before the clock starts: what speculation learns in them it keeps."""


@dataclass(frozen=True, slots=True)
class Cell:
    """`n_clients` that request texts of `n_text` tokens, one after the other, until each has `n_tokens`
    tokens.

    `inline`: a draft model in the lead's engine. `seed`: of the texts and of the times of steps.
    `contention`: the backs run on the lead's machine.
    """

    steps: StepTable
    backs: tuple[BackSpec, ...] = ()
    n_clients: int = 1
    n_tokens: int = 1024
    n_text: int = 256
    inline: BackSpec | None = None
    seed: int = 0
    contention: Contention | None = None
    constants: SpeculationConstants = DEFAULTS
    host: HostTime = HOST


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """Totals over all clients, after the warm-up."""

    tokens_per_second: float
    tokens_per_step: float
    mean_depth: float


def simulate(cell: Cell, policy: PolicyName, depth: int = 0) -> CellOutcome:
    simulation = _Simulation(cell, policy, depth)
    simulation.run(_N_WARM_UP * cell.n_clients)
    before = simulation.totals()
    simulation.run((_N_WARM_UP + cell.n_tokens) * cell.n_clients)
    seconds, n_tokens, n_steps, n_drafted = (
        after - then for after, then in zip(simulation.totals(), before, strict=True)
    )
    return CellOutcome(
        tokens_per_second=n_tokens / seconds,
        tokens_per_step=n_tokens / max(1, n_steps),
        mean_depth=n_drafted / max(1, n_steps),
    )


@functools.lru_cache(maxsize=64)
def _text(n_tokens: int, seed: int, number: int) -> Text:
    """Return the text with this number, the same for every policy."""
    return Text(n_tokens, seed * 1_000_003 + number)


@dataclass
class _Simulation:
    cell: Cell
    policy: PolicyName
    depth: int
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
            depth=self.depth,
            constants=self.cell.constants,
            n_slots=self.cell.n_clients,
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
        for client in range(self.cell.n_clients):
            self.clock.after(0.0, functools.partial(self._ask, client))

    def run(self, n_tokens: int) -> None:
        self.clock.run(lambda: self._lead.stats.n_committed >= n_tokens)

    def totals(self) -> tuple[float, ...]:
        """Since the beginning: seconds, tokens, steps, tokens drafted."""
        stats = self._lead.stats
        return self.clock.now, stats.n_committed, stats.n_steps, stats.n_draft_tokens

    def _connect(self, name: str, spec: BackSpec) -> Link[DrafterMessage]:
        drafts = Link(self.clock, spec.rtt_s / 2, spec.message_s, self._lead.post)
        back = SimulatedBack(
            name,
            spec,
            self.clock,
            drafts.send,
            self.texts,
            n_slots=self.cell.n_clients,
            compute=functools.partial(self._machine.run, name) if self._machine else None,
        )
        return Link(self.clock, spec.rtt_s / 2, spec.message_s, back.receive)

    def _ask(self, client: int) -> None:
        key = len(self.texts)
        self.texts[key] = _text(self.cell.n_text, self.cell.seed, key)
        sequence = f"{client}.{key}"
        self._lead.submit(sequence, key)
        for link, part in self._links:
            link.send(Open(sequence=sequence, sampling=GREEDY, tokens=[key], part=part))

    def _on_event(self, event: LeadEvent) -> None:
        match event:
            case Committed():
                for link, part in self._links:
                    link.send(
                        Extend(sequence=event.sequence, start=event.start, tokens=event.tokens, part=part)
                    )
            case Finished():
                self._send(Close(sequence=event.sequence, reason="ended"))
                self._ask(int(event.sequence.split(".")[0]))
            case Tune():
                self._send(event)

    def _send(self, message: DrafterMessage) -> None:
        for link, _ in self._links:
            link.send(message)
