"""Divides a back's time among several leads.

Leads with equally good drafts get equal time as long as they have work. All their sequences are decoded
together as long as no lead is ahead of the others. A lead whose draft tokens are worth less gets less time,
but never less than a quarter of another lead's. A claimed value counts only up to the lead's acceptance, so a
lead can only lower its own share by a claim. A lead that has no work, or is disconnected, costs nothing and
gets no extra time later.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

_SLACK_SECONDS = 0.02
"""The time that a lead may be ahead before it must wait for others; alternating less often saves decodes."""
_MAX_AHEAD_SECONDS = 10.0
"""The maximum time that a lead can be ahead, because the machine may have slept during a step."""
_MIN_WEIGHT = 0.25
_EQUAL = 0.75
"""Values above this share of the best value count as equal to it."""
_DECAY = 0.98
"""Each new draft token multiplies the weight of earlier ones by this: about the last 50 tokens count."""


@dataclass(slots=True)
class _LeadAccount:
    """The account of a lead.

    seconds: the time of decoding for the lead, each part divided by the lead's weight at that time. claim:
    the value of a draft token, as the lead reports it. n_right of n_drafted tokens were committed.
    """

    seconds: float = 0.0
    claim: float = 1.0
    n_right: float = 1.0
    n_drafted: float = 1.0

    @property
    def value(self) -> float:
        """The value of a draft token, in tokens of the lead's texts."""
        return min(self.claim, self.n_right / self.n_drafted)


class LeadShares:
    """The time that each lead has used, and its share. Leads are numbered from 0. Reads no clock."""

    def __init__(self, n_leads: int) -> None:
        self._leads = [_LeadAccount() for _ in range(n_leads)]
        self._waiting: Collection[int] = ()
        self._now = 0.0  # the least weighted time of the leads with work

    def choose(self, waiting: Collection[int]) -> set[int]:
        """Return the leads to serve in the next step, out of the leads `waiting` with work.

        The set is empty only if `waiting` is empty.
        """
        for lead in waiting:
            if lead not in self._waiting:
                account = self._leads[lead]
                account.seconds = max(account.seconds, self._now)
        self._waiting = set(waiting)
        if not waiting:
            return set()
        self._now = max(self._now, min(self._leads[lead].seconds for lead in waiting))
        for lead in waiting:
            account = self._leads[lead]
            account.seconds = min(account.seconds, self._now + _MAX_AHEAD_SECONDS)
        return {lead for lead in waiting if self._leads[lead].seconds <= self._now + _SLACK_SECONDS}

    def charge(self, n_tokens: Mapping[int, int], seconds: float) -> None:
        """Account for a step of `seconds` with the given number of tokens for each lead."""
        total = sum(n_tokens.values())
        for lead, n in n_tokens.items():
            self._leads[lead].seconds += seconds * n / (total * self._weight(lead))

    def claim(self, lead: int, value: float | None) -> None:
        """Set the value of a draft token that a lead reports; None: unknown."""
        self._leads[lead].claim = 1.0 if value is None else value

    def learn(self, lead: int, n_right: int, n_wrong: int) -> None:
        """Record outcomes: `n_right` draft tokens were committed, and `n_wrong` were replaced by other
        tokens.
        """
        account = self._leads[lead]
        kept = _DECAY ** (n_right + n_wrong)
        account.n_drafted = account.n_drafted * kept + n_right + n_wrong
        account.n_right = account.n_right * kept + n_right

    def _weight(self, lead: int) -> float:
        """Return the weight of a lead, from its value relative to the best value of a lead that had work."""
        best = max(self._leads[each].value for each in self._waiting)
        part = self._leads[lead].value / best if best else 1.0
        return 1.0 if part >= _EQUAL else max(part, _MIN_WEIGHT)
