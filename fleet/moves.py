"""The backs that should draft for another lead: where they gain most, and not for small differences.

Knows neither Ray nor processes. docs/scale.md says what moving gains in a simulated fleet.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

_UNKNOWN_GAIN = 1.0
_FORGOTTEN = 0.01
"""With each look: half is forgotten after about ten minutes of looks every ten seconds."""
_INCUMBENT = 1.25
"""A back must gain so much more elsewhere: a move costs reading texts, and perhaps loading a model."""


@dataclass(frozen=True, slots=True)
class LeadNeed:
    """`n_running`: sequences that are being generated, of late; `gain`: tokens per second that a back adds
    to one of them.
    """

    lead: str
    n_running: float
    gain: float = _UNKNOWN_GAIN

    def marginal(self, n_backs: int, n_each: float) -> float:
        """The gain of one back more than `n_backs`, if each drafts for `n_each` sequences without loss."""
        left = self.n_running - n_backs * n_each
        return self.gain * min(max(left, 0.0), n_each)


class Move(NamedTuple):
    """`back` is to draft for `lead` from now on."""

    back: str
    lead: str


def gain_of(backs: Iterable[Mapping[str, Any]], before: float) -> float:
    """The gain of a draft token of a lead's best back, as `Back.value` has it.

    `backs` as in `GET /v1/speculation`. If none of them is asked for a sequence, what was known `before` is
    forgotten by and by: a lead that gained little would get no back otherwise, and never show that its texts
    are others now.
    """
    gains = [float(back["gain"]) for back in backs if back["n_asked"]]
    return max(gains) / (1 + max(gains)) if gains else before + _FORGOTTEN * (_UNKNOWN_GAIN - before)


def plan_moves(needs: Sequence[LeadNeed], placed: Mapping[str, str | None], n_each: float) -> list[Move]:
    """The moves that gain most, the best first. `placed`: each back's lead; None: none yet.

    A back whose lead is not among `needs` has none.
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
        """The lead where one more back gains most; among equals, such as idle leads, one with few backs."""
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
