"""A fleet in which each lead has its real scheduler, speculation and choice of backs, and each back divides
its time by the real rule. About 20 ms of CPU for a second of a lead with a back: for tens of leads.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from back.lead_shares import LeadShares
from bench.simulation.fleet_spec import FleetOutcome, FleetSpec
from lead.backs.assignment import Assignment
from lead.engine.commands import PostDraft
from lead.engine.events import Committed, Finished, Tuned
from lead.engine.speculation.drafts import DraftTree
from lead.simulation.clock import VirtualClock
from lead.simulation.network import Link
from lead.simulation.shared_machine import Contention, SharedMachine
from lead.simulation.simulated_back import Closed, Extended, Opened, SimulatedBack, SimulatedUpdate, Valued
from lead.simulation.simulated_lead import LeadEvent, SimulatedLead
from lead.simulation.text import DraftSkill, Guess, Text

_VALUE_CHANGE = 0.15
"""As `lead.backs.registry` has it: smaller changes of a draft token's value are not told."""


class LeadText(Text):
    """A text of a lead whose texts are easier or harder to draft than others'."""

    def __init__(self, n_tokens: int, seed: int, acceptance: float) -> None:
        super().__init__(n_tokens, seed)
        self._acceptance = acceptance

    def guesses(self, skill: DraftSkill, position: int) -> tuple[Guess, ...]:
        """As `Text.guesses`, at this text's acceptance."""
        return super().guesses(replace(skill, acceptance=self._acceptance), position)


class FleetLead:
    """A lead with the backs that are connected to it."""

    def __init__(
        self,
        number: int,
        spec: FleetSpec,
        clock: VirtualClock,
        machine: SharedMachine | None,
        on_end: Callable[[int], None],
    ) -> None:
        """on_end: called with this lead's number when one of its texts is complete."""
        self.number = number
        compute = functools.partial(machine.run_lead, name=str(number)) if machine else None
        self._clock = clock
        self._on_end = on_end
        self._engine = SimulatedLead(
            clock,
            spec.steps,
            self._on_event,
            policy="adaptive",
            n_slots=spec.n_slots,
            seed=number,
            compute=compute,
        )
        self._assignment = Assignment(clock.now)
        self._links: dict[str, Link[SimulatedUpdate]] = {}
        self._opened: dict[str, set[str]] = {}
        self._values: dict[str, float] = {}
        self._texts: dict[str, Text] = {}
        self._committed: dict[str, list[int]] = {}

    @property
    def n_tokens(self) -> int:
        """Committed so far."""
        return self._engine.stats.n_committed

    @property
    def n_accepted(self) -> int:
        """Of them, those that were drafted."""
        return self._engine.stats.n_accepted_tokens

    def connect(self, backs: dict[str, Link[SimulatedUpdate]], max_sequences: int) -> None:
        """All of its backs, with the way to each."""
        self._links = backs
        self._opened = {name: set() for name in backs}
        for name in backs:
            self._assignment.join(name, max_sequences, self._clock.now)
        self._engine.connect(list(backs))

    def submit(self, sequence: str, text: Text) -> None:
        """Write a text; `sequence` is unique in the fleet."""
        self._texts[sequence], self._committed[sequence] = text, [text.token(0)]
        self._engine.submit(sequence, text)
        self._assignment.open(sequence, self._clock.now)
        self._tell(sequence)

    def post(self, draft: PostDraft) -> None:
        """A draft of a back arrives."""
        committed = self._committed.get(draft.sequence)
        if committed is None:
            return
        tree = DraftTree(draft.base, draft.tokens, draft.parents, draft.confidences)
        if self._assignment.on_draft(draft.source, draft.sequence, tree, committed):
            self._engine.post(draft)

    def _on_event(self, event: LeadEvent) -> None:
        match event:
            case Committed():
                self._committed[event.sequence] += event.tokens
                self._assignment.on_step(event.sequence, event.start, event.tokens, self._clock.now)
                self._tell(event.sequence)
            case Finished():
                self._close(event.sequence)
            case Tuned():
                for link in self._links.values():
                    link.send(event)

    def _tell(self, sequence: str) -> None:
        """The backs that are asked for a sequence get its tokens."""
        n_committed = len(self._committed[sequence])
        for name in self._assignment.backs(sequence):
            self._tell_value(name)
            if sequence in self._opened[name]:
                self._links[name].send(Extended(sequence, n_committed))
            else:
                self._opened[name].add(sequence)
                self._links[name].send(Opened(sequence, self._texts[sequence], n_committed))

    def _tell_value(self, name: str) -> None:
        value = self._assignment.value(name)
        if value is not None and abs(value - self._values.get(name, 1.0)) > _VALUE_CHANGE:
            self._values[name] = value
            self._links[name].send(Valued(value))

    def _close(self, sequence: str) -> None:
        for name, opened in self._opened.items():
            if sequence in opened:
                opened.remove(sequence)
                self._links[name].send(Closed(sequence))
        self._assignment.close(sequence, self._clock.now)
        del self._texts[sequence], self._committed[sequence]
        self._on_end(self.number)


@dataclass
class ExactFleet:
    """`n_clients` of each lead ask for texts of `n_text` tokens, one after the other, without a pause.

    contention: leads and backs share a machine; None: each has one of its own.
    """

    spec: FleetSpec
    n_clients: Sequence[int]
    n_text: int = 256
    seed: int = 0
    contention: Contention | None = None
    clock: VirtualClock = field(default_factory=VirtualClock)

    def __post_init__(self) -> None:
        machine = SharedMachine(self.clock, self.contention) if self.contention else None
        self._n_texts = 0
        self._leads = [
            FleetLead(number, self.spec, self.clock, machine, self._ask)
            for number in range(self.spec.n_leads)
        ]
        links: list[dict[str, Link[SimulatedUpdate]]] = [{} for _ in self._leads]
        self._backs = [self._back(number, machine, links) for number in range(self.spec.n_backs)]
        for lead, ways in zip(self._leads, links, strict=True):
            lead.connect(ways, self.spec.n_slots)
        for lead, n in zip(self._leads, self.n_clients, strict=True):
            for _ in range(n):
                self.clock.after(0.0, functools.partial(self._ask, lead.number))

    def run(self, warm_up_s: float, seconds: float) -> FleetOutcome:
        """What happens in so many seconds after a warm-up."""
        self._run_until(warm_up_s)
        before = self._totals()
        tokens_before = [lead.n_tokens for lead in self._leads]
        self._run_until(warm_up_s + seconds)
        n_tokens, n_drafted, n_accepted, back_seconds = (
            now - then for now, then in zip(self._totals(), before, strict=True)
        )
        speeds = (lead.n_tokens - n for lead, n in zip(self._leads, tokens_before, strict=True))
        return FleetOutcome(
            seconds,
            n_tokens,
            n_drafted,
            n_accepted,
            back_seconds,
            sum(self.n_clients) * seconds,
            tuple(n / seconds for n in speeds),
        )

    def _run_until(self, seconds: float) -> None:
        self.clock.after(seconds - self.clock.now, lambda: None)
        self.clock.run(lambda: self.clock.now >= seconds)

    def _totals(self) -> tuple[float, float, float, float]:
        return (
            sum(lead.n_tokens for lead in self._leads),
            sum(back.n_drafted for back in self._backs),
            sum(lead.n_accepted for lead in self._leads),
            sum(back.busy_seconds for back in self._backs),
        )

    def _back(
        self, number: int, machine: SharedMachine | None, links: list[dict[str, Link[SimulatedUpdate]]]
    ) -> SimulatedBack:
        """Adds the way from each of its leads to `links`."""
        spec, name = self.spec.back, f"back-{number}"
        leads = self.spec.leads_of(number)
        posts = {
            lead: Link(self.clock, spec.rtt_s / 2, spec.message_s, self._leads[lead].post) for lead in leads
        }
        back = SimulatedBack(
            name,
            spec,
            self.clock,
            lambda draft: posts[_lead_of(draft.sequence)].send(draft),
            compute=functools.partial(machine.run_back, name) if machine else None,
            shares=LeadShares(len(leads)) if len(leads) > 1 else None,
        )
        for i, lead in enumerate(leads):
            receive = functools.partial(back.receive, lead=i)
            links[lead][name] = Link(self.clock, spec.rtt_s / 2, spec.message_s, receive)
        return back

    def _ask(self, lead: int) -> None:
        self._n_texts += 1
        seed = self.seed * 1_000_003 + self._n_texts
        text = LeadText(self.n_text, seed, self.spec.acceptance(lead))
        self._leads[lead].submit(f"{lead}.{self._n_texts}", text)


def _lead_of(sequence: str) -> int:
    return int(sequence.partition(".")[0])
