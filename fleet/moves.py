"""Decides which backs should draft for another lead: where they gain most, ignoring small differences.

Knows neither Ray nor processes. docs/scale.md says what moving gains in a simulated fleet.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

_UNKNOWN_GAIN = 1.0
_FORGOTTEN = 0.01
"""The share forgotten with each look: half after about ten minutes of looks every ten seconds."""
_INCUMBENT = 1.25
"""A back must gain so much more elsewhere: a move costs reading texts, and perhaps loading a model."""


@dataclass(frozen=True, slots=True)
class LeadNeed:
    """A lead's demand for backs.

    n_running: the recent number of sequences being generated. gain: tokens per second that a back adds to one
    sequence.
    """

    lead: str
    n_running: float
    gain: float = _UNKNOWN_GAIN

    def marginal(self, n_backs: int, n_each: float) -> float:
        """Return the tokens per second gained by one more back than `n_backs`.

        n_each: the number of sequences that a back can draft for at full speed.
        """
        left = self.n_running - n_backs * n_each
        return self.gain * min(max(left, 0.0), n_each)


class Move(NamedTuple):
    """The assignment of `back` to `lead`."""

    back: str
    lead: str


def gain_of(backs: Iterable[Mapping[str, Any]], before: float) -> float:
    """Return the value of a draft token of the lead's best back, between 0 and 1, from each back's `gain`.

    backs: as in `GET /v1/speculation`. While no back is asked to draft, the value slowly returns from
    `before` to that of an unknown back. Otherwise a lead that gained little would never get a back again,
    even if its texts change.
    """
    gains = [float(back["gain"]) for back in backs if back["n_asked"]]
    return max(gains) / (1 + max(gains)) if gains else before + _FORGOTTEN * (_UNKNOWN_GAIN - before)


def plan_moves(needs: Sequence[LeadNeed], placed: Mapping[str, str | None], n_each: float) -> list[Move]:
    """Return the moves that gain most, best first. `placed`: the current lead of each back; None: none yet.

    A back whose lead is not in `needs` counts as free.
    """
    leads = {need.lead: need for need in needs}
    backs: dict[str, list[str]] = {lead: [] for lead in leads}
    free: list[str] = []
    for back, lead in placed.items():
        backs.get(lead or "", free).append(back)

    def more(lead: str) -> float:
        return leads[lead].marginal(len(backs[lead]), n_each)

    def less(lead: str) -> float:
        return leads[lead].marginal(len(backs[lead]) - 1, n_each)

    def taker() -> str:
        """Return the lead where one more back gains most; among equals, such as idle leads, one with few
        backs.
        """
        return min(backs, key=lambda lead: (-more(lead), len(backs[lead]), lead))

    moves = []
    # first backs without a lead, then those that gain clearly more elsewhere
    while backs and free:
        moves.append(Move(free.pop(0), taker()))
        backs[moves[-1].lead].append(moves[-1].back)
    while givers := [lead for lead, of_lead in backs.items() if of_lead]:
        giver, lead = min(givers, key=lambda each: (less(each), each)), taker()
        if more(lead) <= _INCUMBENT * less(giver) or lead == giver:
            break
        moves.append(Move(backs[giver].pop(), lead))
        backs[lead].append(moves[-1].back)
    return moves
