"""Which backs should draft for another lead: where they gain most, and not for small differences.

Knows neither Ray nor processes. docs/scale.md says what moving gains in a simulated fleet.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

_INCUMBENT = 1.25
"""A back must gain so much more elsewhere: a move costs reading texts, and perhaps loading a model."""


@dataclass(frozen=True, slots=True)
class LeadNeed:
    """`n_running`: sequences that are being generated, of late; `gain`: tokens per second that a back adds
    to one of them.
    """

    lead: str
    n_running: float
    gain: float = 1.0

    def marginal(self, n_backs: int, n_each: float) -> float:
        """What one more than `n_backs` adds, if each drafts for `n_each` sequences without loss."""
        left = self.n_running - n_backs * n_each
        return self.gain * min(max(left, 0.0), n_each)


class Move(NamedTuple):
    """`back` is to draft for `lead` from now on."""

    back: str
    lead: str


def gain_of(backs: Iterable[Mapping[str, Any]], before: float) -> float:
    """What a draft token of the best of a lead's backs is worth to it, as `Assignment.value` has it.

    `backs` as in `GET /v1/speculation`; `before`, if none of them is asked for a sequence.
    """
    gains = [float(back["gain"]) for back in backs if back["n_asked"]]
    return max(gains) / (1 + max(gains)) if gains else before


def plan_moves(needs: Sequence[LeadNeed], placed: Mapping[str, str | None], n_each: float) -> list[Move]:
    """The moves that gain most, the best first. `placed`: each back's lead; None: none yet.

    A back whose lead is not among `needs` has none.
    """
    return _MovePlan(needs, placed, n_each).run()


class _MovePlan:
    def __init__(self, needs: Sequence[LeadNeed], placed: Mapping[str, str | None], n_each: float) -> None:
        self._needs = {need.lead: need for need in needs}
        self._n_each = n_each
        self._backs: dict[str, list[str]] = {need.lead: [] for need in needs}
        self._free: list[str] = []
        for back, lead in placed.items():
            self._backs.get(lead or "", self._free).append(back)
        self._wanting = [self._wish(lead) for lead in self._backs]
        self._giving = [(self._less(lead), lead) for lead, backs in self._backs.items() if backs]
        heapq.heapify(self._wanting)
        heapq.heapify(self._giving)

    def run(self) -> list[Move]:
        """Until no move is worth it."""
        if not self._needs:
            return []
        return [*self._place_free(), *self._exchange()]

    def _place_free(self) -> Iterable[Move]:
        for back in self._free:
            *_, lead = self._wanting[0]
            self._put(back, lead)
            yield Move(back, lead)

    def _exchange(self) -> Iterable[Move]:
        while self._giving:
            (no_gain, _, taker), (lost, giver) = self._wanting[0], self._giving[0]
            if -no_gain <= _INCUMBENT * lost or taker == giver:
                return
            back = self._backs[giver].pop()
            heapq.heappop(self._giving)
            if self._backs[giver]:
                heapq.heappush(self._giving, (self._less(giver), giver))
            self._put(back, taker)
            yield Move(back, taker)

    def _put(self, back: str, lead: str) -> None:
        """To the lead that wants one most."""
        self._backs[lead].append(back)
        heapq.heapreplace(self._wanting, self._wish(lead))

    def _wish(self, lead: str) -> tuple[float, int, str]:
        """Sorts first what gains most; among equals, such as idle leads, who has the fewest backs."""
        return -self._more(lead), len(self._backs[lead]), lead

    def _more(self, lead: str) -> float:
        return self._needs[lead].marginal(len(self._backs[lead]), self._n_each)

    def _less(self, lead: str) -> float:
        return self._needs[lead].marginal(len(self._backs[lead]) - 1, self._n_each)
