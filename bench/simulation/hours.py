"""Hours of a simulated lead: clients and backs come and go, texts grow, the machine's speed changes.

The engine, its speculation and the backs' drafters are the real ones. After each step the learned T(n) is
compared with the true one. The tokens of all hours are compared with those of a lead that is told T(n).
"""

import functools
import math
import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from bench.simulation.scenarios import BIG_CPU, FLAT, Q8_0
from lead.engine.events import Committed, Finished
from lead.simulation.clock import Link, VirtualClock
from lead.simulation.machine import StepTable
from lead.simulation.simulated_back import GREEDY, BackSpec, SimulatedBack
from lead.simulation.simulated_lead import LeadEvent, SimulatedLead
from lead.simulation.text import DraftSkill, Text
from shared.drafting.drafter import DrafterMessage
from shared.protocol import Close, Draft, Extend, Open, Tune
from shared.step_cost import StepCost

_TABLES = tuple(
    replace(each, points=(*each.points, (64, 4 * each.seconds(8)))) for each in (FLAT, BIG_CPU, Q8_0)
)
"""Wide steps are not free, which the tables do not say."""
_N_TEXT = 384
_GROWTH = 0.3
"""How much longer a step takes at the end of all texts."""
_SLOWEST = 3.0
_MOST_CLIENTS = 8
_PHASES_S = (40.0, 240.0)
_IDLE_SHARE = 0.15
_IDLE_S, _SUSPENDED_S = (30.0, 1200.0), (10.0, 600.0)
_N_HICCUPS = 100
"""One step in so many is interrupted, and takes longer by a factor up to `_HICCUP`."""
_HICCUP = 5.0
_JUMP, _N_JUMP = 1.2, 10
"""T(n) that changes by this factor within so many steps has jumped."""
_SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24)
_N_SETTLED = 200


def _back_specs(step_s: float) -> dict[str, BackSpec]:
    """By name. Side branches would change nothing, and are most of the work of a simulated back."""
    good = BackSpec(0.1 * step_s, 0.003, DraftSkill(0.8), n_branches=0)
    return {
        "good": good,
        "quick": replace(good, step_s=0.03 * step_s, skill=DraftSkill(0.6, 1)),
        "far": replace(good, rtt_s=0.05),
        "slow": replace(good, step_s=2.0 * step_s, skill=DraftSkill(0.8, 2)),
        "sure and wrong": replace(good, skill=DraftSkill(0.8, 3, honest=False)),
        "silent": replace(good, silent_from=0.0),
    }


_BACKS = tuple(_back_specs(1.0))


class Phase(NamedTuple):
    """So many clients and these backs, from `start` on, in seconds.

    A step takes `slow_at_first` times as long as usual, at the end `slow_at_last` times. The first one takes
    `suspended_s` in addition: the machine slept.
    """

    start: float
    seconds: float
    slow_at_first: float
    slow_at_last: float
    n_clients: int
    backs: tuple[str, ...]
    suspended_s: float


def schedule(seconds: float, seed: int) -> list[Phase]:
    """So many seconds of phases. A phase begins with a jump, or goes on at the speed of the one before."""
    rng = random.Random(seed)  # noqa: S311 - a reproducible schedule
    names, phases, start, slow = _BACKS, list[Phase](), 0.0, 1.0
    while start < seconds:
        is_idle = bool(phases) and rng.random() < _IDLE_SHARE
        length = min(rng.uniform(*(_IDLE_S if is_idle else _PHASES_S)), seconds - start)
        first = rng.choice([slow, rng.uniform(1, _SLOWEST), 1.0, _SLOWEST])
        slow = rng.choice([first, first, rng.uniform(1, _SLOWEST)])
        n_clients = 0 if is_idle else rng.choice([1, 1, 1, 2, 3, _MOST_CLIENTS])
        backs = tuple(rng.sample(names, rng.choice([0, 1, 1, 2, 3])))
        suspended = rng.uniform(*_SUSPENDED_S) if phases and rng.random() < _IDLE_SHARE else 0.0
        phases.append(Phase(start, length, first, slow, n_clients, backs, suspended))
        start += length
    return phases


class _Machine:
    """The truth: how long a step takes now. `seconds` is what one does take, with its interruptions."""

    settling = ()

    def __init__(self, clock: VirtualClock, table: StepTable, step_s: float, seed: int) -> None:
        """step_s: what T(1) is at its quickest; the others are as in the table, relative to it."""
        self._clock = clock
        self._table = table
        self._unit = step_s / table.seconds(1)
        self._rng = random.Random(seed)  # noqa: S311 - reproducible interruptions
        self._phase = Phase(0, 1, 1, 1, 0, (), 0)
        self._suspended_s = 0.0
        self.lengths: Counter[str] = Counter()

    def begin(self, phase: Phase) -> None:
        self._phase = phase
        self._suspended_s = phase.suspended_s

    @property
    def factor(self) -> float:
        """How many times as long as in the table."""
        phase = self._phase
        passed = min(1.0, (self._clock.now - phase.start) / phase.seconds)
        slow = phase.slow_at_first + passed * (phase.slow_at_last - phase.slow_at_first)
        length = self.lengths.total() / max(1, len(self.lengths))
        return slow * (1 + _GROWTH * length / _N_TEXT) * self._unit

    def true_seconds(self, n: int) -> float:
        return self.factor * self._table.seconds(n)

    def seconds(self, n: int) -> float:
        hiccup = self._rng.uniform(1, _HICCUP) if self._rng.randrange(_N_HICCUPS) == 0 else 1.0
        suspended, self._suspended_s = self._suspended_s, 0.0
        return self.true_seconds(n) * hiccup + suspended


class _Told(StepCost):
    """Knows T(n)."""

    def __init__(self, machine: _Machine) -> None:
        super().__init__()
        self._machine = machine

    def seconds(self, n_tokens: int) -> float:
        return self._machine.true_seconds(n_tokens)


@dataclass
class Errors:
    """The largest factors by which T(n) was wrong.

    `ever`: at any moment. `measured` and `others`: from 200 steps on after the speed last jumped, for sizes
    that were measured in these steps, and for all others: of `n_judged` steps.
    """

    ever: float = 1.0
    measured: float = 1.0
    others: float = 1.0
    n_judged: int = 0


class _Watched(StepCost):
    """Learns as always. `errors`: of what it has learned."""

    def __init__(self, machine: _Machine) -> None:
        super().__init__()
        self._machine = machine
        self._factors = deque[float](maxlen=_N_JUMP)
        self._since_jump: Counter[int] = Counter()
        self.errors = Errors()

    def learn(self, n_tokens: int, seconds: float) -> None:
        super().learn(n_tokens, seconds)
        factor, errors = self._machine.factor, self.errors
        self._factors.append(factor)
        if max(self._factors) > _JUMP * min(self._factors):
            self._since_jump.clear()
        self._since_jump[n_tokens] += 1
        wrong = {n: self._wrong_by(n) for n in _SIZES}
        errors.ever = max(errors.ever, *wrong.values())
        if self._since_jump.total() > _N_SETTLED:
            errors.n_judged += 1
            measured = [each for n, each in wrong.items() if n in self._since_jump]
            others = [each for n, each in wrong.items() if n not in self._since_jump]
            errors.measured = max([errors.measured, *measured])
            errors.others = max([errors.others, *others])

    def _wrong_by(self, n: int) -> float:
        learned, true = self.seconds(n), self._machine.true_seconds(n)
        return max(learned / true, true / learned) if 0 < learned < math.inf else math.inf


@dataclass
class _Hours:
    """One lead through all phases of a schedule."""

    seconds: float
    seed: int
    step_s: float
    is_told: bool
    clock: VirtualClock = field(default_factory=VirtualClock)
    texts: dict[int, Text] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._machine = _Machine(self.clock, _TABLES[self.seed % len(_TABLES)], self.step_s, self.seed)
        self._specs = _back_specs(self.step_s)
        self.cost = _Told(self._machine) if self.is_told else _Watched(self._machine)
        self.lead = SimulatedLead(
            self.clock,
            self._machine,
            self._on_event,
            self.texts,
            policy="adaptive",
            n_slots=_MOST_CLIENTS,
            seed=self.seed,
            cost=self.cost,
        )
        self._links: dict[str, Link[DrafterMessage]] = {}
        self._running: dict[str, list[int]] = {}
        self._n_clients = 0
        self._n_backs_ever = 0
        for phase in schedule(self.seconds, self.seed):
            self.clock.after(phase.start, functools.partial(self._begin, phase))

    def run(self) -> int:
        """Returns how many tokens were written."""
        self.clock.pass_until(self.seconds)
        return self.lead.stats.n_committed

    def _begin(self, phase: Phase) -> None:
        self._machine.begin(phase)
        self._links = {name: self._links.get(name) or self._connect(name) for name in phase.backs}
        self.lead.connect(list(phase.backs))
        self._n_clients = phase.n_clients
        for client in range(phase.n_clients):
            self._ask(client)

    def _connect(self, name: str) -> Link[DrafterMessage]:
        """A back that knows nothing yet; what an earlier one of that name still sends is dropped."""
        spec = self._specs[name]
        link: Link[DrafterMessage]

        def arrive(draft: Draft) -> None:
            if self._links.get(name) is link:
                self.lead.post(draft)

        drafts = Link(self.clock, spec.rtt_s / 2, spec.message_s, arrive)
        back = SimulatedBack(name, spec, self.clock, drafts.send, self.texts, n_slots=_MOST_CLIENTS)
        link = Link(self.clock, spec.rtt_s / 2, spec.message_s, back.receive)
        for sequence, tokens in self._running.items():
            link.send(Open(sequence=sequence, sampling=GREEDY, tokens=list(tokens)))
        return link

    def _ask(self, client: int) -> None:
        if client >= self._n_clients or any(each.startswith(f"{client}.") for each in self._running):
            return
        key = len(self.texts)
        n_tokens = random.Random(f"{self.seed} {key}").randint(32, _N_TEXT)  # noqa: S311 - reproducible
        self.texts[key] = Text(n_tokens, self.seed * 1_000_003 + key)
        sequence = f"{client}.{key}"
        self._running[sequence] = [key]
        self._machine.lengths[sequence] = 1
        self.lead.submit(sequence, key)
        self._send(Open(sequence=sequence, sampling=GREEDY, tokens=[key]))

    def _on_event(self, event: LeadEvent) -> None:
        match event:
            case Committed():
                tokens = self._running[event.sequence]
                tokens += event.tokens
                self._machine.lengths[event.sequence] = len(tokens)
                self._send(Extend(sequence=event.sequence, start=event.start, tokens=event.tokens))
            case Finished():
                self._send(Close(sequence=event.sequence, reason="ended"))
                del self._running[event.sequence], self._machine.lengths[event.sequence]
                self._ask(int(event.sequence.split(".")[0]))
            case Tune():
                self._send(event)

    def _send(self, message: DrafterMessage) -> None:
        for link in self._links.values():
            link.send(message)


@dataclass(frozen=True)
class HoursOutcome:
    """`to_told`: tokens of all hours over those of a lead that is told T(n)."""

    seed: int
    n_tokens: int
    to_told: float
    errors: Errors


def hours(seconds: float, step_s: float, seed: int) -> HoursOutcome:
    """So many seconds of virtual time; a step of one token takes step_s or longer."""
    learning = _Hours(seconds, seed, step_s, is_told=False)
    assert isinstance(learning.cost, _Watched)
    n_tokens = learning.run()
    told = _Hours(seconds, seed, step_s, is_told=True).run()
    return HoursOutcome(seed, n_tokens, n_tokens / told, learning.cost.errors)


def many_hours(
    seconds: float, step_s: float, seeds: Iterable[int], n_jobs: int | None = None
) -> Iterator[HoursOutcome]:
    """With each seed; in `n_jobs` processes, by default one for each core."""
    with ProcessPoolExecutor(n_jobs) as pool:
        yield from pool.map(functools.partial(hours, seconds, step_s), seeds)
