"""A fleet of up to tens of thousands of leads and backs, in steps of a fraction of a second.

How fast a lead is comes from `LeadSpeeds`, so from the exact planner; how a back divides its time from
`LeadShares`; which backs move from `plan_moves`; how many backs a sequence has from `Assignment`. Arrivals,
routing, moves and failures happen once in a step. Reading prompts takes no time here.
"""

import functools
import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from back.lead_shares import LeadShares
from bench.simulation.fleet_spec import FleetOutcome, FleetSpec
from bench.simulation.lead_speeds import Floats, LeadSpeeds
from fleet.moves import LeadNeed, plan_moves
from lead.backs.assignment import MOST_ASKED

Ints = NDArray[np.intp]

TICK_S = 0.25
_RECENT_S = 10.0
"""Over which a pool counts a lead's sequences."""


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """Requests come at random, `per_second` in the whole fleet, for `n_text` tokens on average.

    A router sends each to the lead that is the least busy as far as it knows: it asks a lead for its load
    every `poll_s`. Leads and backs fail every `mtbf_s` on average and are away for `repair_s`.
    """

    per_second: float
    n_text: float = 200.0
    poll_s: float = 1.0
    n_routers: int = 1
    mtbf_s: float = math.inf
    repair_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Pooling:
    """Backs are moved every `period_s`; one that is moved drafts nothing for `moving_s`.

    `ideal`: power flows at once to wherever sequences are, which nothing real can do.
    """

    period_s: float = math.inf
    moving_s: float = 5.0
    ideal: bool = False


@dataclass(slots=True)
class FleetEvents:
    """Counts since the beginning; `waits`: seconds in a queue, of each request that got a slot."""

    n_requests: int = 0
    n_done: int = 0
    n_cut: int = 0
    n_moves: int = 0
    n_failures: int = 0
    waits: list[float] = field(default_factory=list)

    def wait(self, share: float) -> float:
        """The wait that so large a share of requests did not exceed."""
        return float(np.quantile(self.waits, share)) if self.waits else 0.0


class CoarseFleet:
    """Call `run`; then read `events`."""

    def __init__(
        self, spec: FleetSpec, load: FleetLoad, speeds: LeadSpeeds, pooling: Pooling, *, seed: int = 0
    ) -> None:
        self.events = FleetEvents()
        self._spec, self._load, self._speeds, self._pooling = spec, load, speeds, pooling
        self._rng = np.random.default_rng(seed)
        self._now = 0.0
        n, m = spec.n_leads, spec.n_backs
        self._kinds = np.arange(n) % len(spec.acceptances)
        self._left = np.zeros((n, spec.n_slots))
        self._queues: list[deque[tuple[float, float]]] = [deque() for _ in range(n)]
        self._n_queued = np.zeros(n, dtype=np.intp)
        self._leads_of = np.array([spec.leads_of(back) for back in range(m)], dtype=np.intp)
        self._leads_of = self._leads_of.reshape(m, -1 if m else 1)
        self._lead_up_at, self._back_up_at = np.zeros(n), np.zeros(m)
        self._router_view = np.zeros((load.n_routers, n))
        self._recent = np.zeros(n)
        self._next_move = pooling.period_s
        self._sums = np.zeros(5)  # as in `Speeds`, and seconds of sequences
        self._connect()

    def steady(self, n_running: Ints) -> Floats:
        """Tokens per second of each lead with so many sequences that never end."""
        return self._speeds.at(self._kinds, n_running, self._power(n_running)).generated

    def run(self, seconds: float) -> FleetOutcome:
        """Let so many seconds pass."""
        began, before = self._now, self._sums.copy()
        while self._now < began + seconds - TICK_S / 2:
            self._tick()
        n_tokens, n_drafted, n_accepted, back_seconds, in_use = (self._sums - before).tolist()
        return FleetOutcome(self._now - began, n_tokens, n_drafted, n_accepted, back_seconds, in_use)

    def _tick(self) -> None:
        self._now += TICK_S
        self._fail()
        self._poll()
        self._arrive()
        self._admit()
        self._generate()
        if self._now >= self._next_move:
            self._next_move += self._pooling.period_s
            self._move()

    # What leads do

    def _generate(self) -> None:
        n_running = (self._left > 0).sum(axis=1)
        self._recent += (n_running - self._recent) * TICK_S / _RECENT_S
        speeds = self._speeds.at(self._kinds, n_running, self._power(n_running))
        self._sums += TICK_S * np.array([*(part.sum() for part in speeds), n_running.sum()])
        each = TICK_S * speeds.generated / np.maximum(n_running, 1)
        running = self._left > 0
        self._left -= np.where(running, each[:, None], 0.0)
        self.events.n_done += int((running & (self._left <= 0)).sum())
        np.maximum(self._left, 0.0, out=self._left)

    def _admit(self) -> None:
        for lead in np.flatnonzero(self._n_queued):
            if self._lead_up_at[lead] > self._now:
                continue
            for slot in np.flatnonzero(self._left[lead] == 0.0)[: self._n_queued[lead]]:
                arrived, n_tokens = self._queues[lead].popleft()
                self._left[lead, slot] = n_tokens
                self._n_queued[lead] -= 1
                self.events.waits.append(self._now - arrived)

    # What backs do

    def _connect(self) -> None:
        """Which of its backs a lead asks first, and what a back gives each of its leads."""
        self._rank = np.zeros(self._leads_of.shape, dtype=np.intp)
        if not self._leads_of.size:
            return
        flat = self._leads_of.ravel()
        order = self._rng.permutation(len(flat))
        order = order[np.argsort(flat[order], kind="stable")]
        firsts = np.searchsorted(flat[order], flat[order])
        self._rank.ravel()[order] = np.arange(len(flat)) - firsts
        values = np.array([self._spec.acceptances[kind] for kind in self._kinds])
        self._weights = np.array([lead_weights(tuple(row)) for row in values[self._leads_of].tolist()])

    def _power(self, n_running: Ints) -> Floats:
        """Of each lead, in backs."""
        if self._pooling.ideal:
            return np.asarray(self._spec.n_backs * n_running / max(1, n_running.sum()), dtype=float)
        if not self._leads_of.size:
            return np.zeros(self._spec.n_leads)
        asked = self._rank < MOST_ASKED * n_running[self._leads_of]
        asked &= (self._back_up_at <= self._now)[:, None]
        shares = np.where(asked, self._weights, 0.0)
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-9)
        return np.bincount(self._leads_of.ravel(), shares.ravel(), self._spec.n_leads).astype(float)

    def _move(self) -> None:
        gains = [self._speeds.gain(kind) for kind in range(len(self._spec.acceptances))]
        needs = [
            LeadNeed(str(lead), float(recent), gains[self._kinds[lead]])
            for lead, recent in enumerate(self._recent)
            if self._lead_up_at[lead] <= self._now
        ]
        placed: dict[str, str | None] = {
            str(back): str(leads[0]) for back, leads in enumerate(self._leads_of.tolist())
        }
        moves = plan_moves(needs, placed, self._speeds.sequences_per_back())
        for back, lead in moves:
            self._leads_of[int(back), 0] = int(lead)
            self._back_up_at[int(back)] = self._now + self._pooling.moving_s
        self.events.n_moves += len(moves)
        self._connect()

    # What happens to them

    def _arrive(self) -> None:
        n_requests = self._rng.poisson(self._load.per_second * TICK_S)
        self.events.n_requests += n_requests
        for n_tokens in self._rng.exponential(self._load.n_text, n_requests):
            self._route(self._now, 1.0 + n_tokens)

    def _route(self, arrived: float, n_tokens: float) -> None:
        view = self._router_view[self._rng.integers(self._load.n_routers)]
        idlest = np.flatnonzero(view == view.min())
        lead = idlest[self._rng.integers(len(idlest))]
        view[lead] += 1
        self._queues[lead].append((arrived, n_tokens))
        self._n_queued[lead] += 1

    def _poll(self) -> None:
        """Each router asks a part of the leads in each tick; one that is away counts as full."""
        for view in self._router_view:
            asked = self._rng.random(len(view)) < TICK_S / self._load.poll_s
            busy = (self._left > 0).sum(axis=1) + self._n_queued
            view[asked] = np.where(self._lead_up_at > self._now, np.inf, busy)[asked]

    def _fail(self) -> None:
        chance = TICK_S / self._load.mtbf_s
        if not chance:
            return
        for lead in np.flatnonzero(self._rng.random(self._spec.n_leads) < chance):
            self._lose(int(lead))
        backs = self._rng.random(self._spec.n_backs) < chance
        self._back_up_at[backs] = self._now + self._load.repair_s
        self.events.n_failures += int(backs.sum())

    def _lose(self, lead: int) -> None:
        """Its answers are cut; what has waited there is sent to another lead, as routers do."""
        self._lead_up_at[lead] = self._now + self._load.repair_s
        self._router_view[:, lead] = np.inf
        self.events.n_cut += int((self._left[lead] > 0).sum())
        self.events.n_failures += 1
        self._left[lead] = 0.0
        waiting, self._queues[lead] = self._queues[lead], deque()
        self._n_queued[lead] = 0
        for arrived, n_tokens in waiting:
            self._route(arrived, n_tokens)


@functools.cache
def lead_weights(values: tuple[float, ...]) -> tuple[float, ...]:
    """What a back gives to leads that all have work, as `LeadShares` does it: parts of the largest share.

    `values`: of a draft token, to each of them.
    """
    shares = LeadShares(len(values))
    for lead, value in enumerate(values):
        shares.claim(lead, value)
    served = dict.fromkeys(range(len(values)), 0.0)
    for _ in range(2000):
        chosen = shares.choose(served.keys())
        shares.charge(dict.fromkeys(chosen, 1), 0.01)
        for lead in chosen:
            served[lead] += 1 / len(chosen)
    return tuple(seconds / max(served.values()) for seconds in served.values())
