"""The board: the drafts that are pinned up for each sequence, by source.

Holds at most one draft per source and sequence: a newer one replaces it. A draft stays on the board while it
agrees with what is committed: after a step that accepted its first tokens, its tail is still a draft.
Knows nothing of models, time or networks.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Proposal:
    """Draft tokens to follow the committed ones, and who proposed them."""

    source: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Draft:
    base: int
    tokens: tuple[int, ...]
    number: int  # drafts are numbered in the order of arrival


class Board:
    """All methods take `committed`, the sequence's committed tokens, and do not modify it."""

    def __init__(self) -> None:
        self._drafts: dict[str, dict[str, _Draft]] = {}
        self._n_posted = 0
        self._stale: Counter[str] = Counter()

    def open(self, sequence: str) -> None:
        """Take drafts for `sequence` from now on."""
        self._drafts[sequence] = {}

    def close(self, sequence: str) -> None:
        """Forget `sequence`; drafts that still arrive for it are stale."""
        self._drafts.pop(sequence, None)

    def post(
        self, sequence: str, source: str, base: int, tokens: Sequence[int], committed: Sequence[int]
    ) -> bool:
        """Pin up a draft; False if nothing of it lives.

        With m = len(committed) ≥ base, a draft lives iff tokens[: m - base] == committed[base : m].
        """
        drafts = self._drafts.get(sequence)
        draft = _Draft(base, tuple(tokens), self._n_posted)
        self._n_posted += 1
        if drafts is None or not _live_tail(draft, committed):
            self._stale[source] += 1
            return False
        drafts[source] = draft
        return True

    def best(self, sequence: str, committed: Sequence[int]) -> Proposal | None:
        """The longest live draft, the newest of equally long ones. Drafts found dead are removed."""
        drafts = self._drafts.get(sequence, {})
        live = {source: _live_tail(draft, committed) for source, draft in drafts.items()}
        for source in [source for source, tail in live.items() if not tail]:
            del drafts[source], live[source]
        if not live:
            return None
        source = max(live, key=lambda name: (len(live[name]), drafts[name].number))
        return Proposal(source, live[source])

    def take_stale(self) -> dict[str, int]:
        """Drafts dropped on arrival since the last call, by source."""
        stale = dict(self._stale)
        self._stale.clear()
        return stale

    def check_integrity(self, sequences: set[str]) -> None:
        """Raise AssertionError unless the board knows exactly `sequences`."""
        assert set(self._drafts) == sequences, f"board has {set(self._drafts)}, expected {sequences}"


def _live_tail(draft: _Draft, committed: Sequence[int]) -> tuple[int, ...]:
    n_passed = len(committed) - draft.base  # draft tokens that are no longer in the future
    if not 0 <= n_passed < len(draft.tokens) or draft.tokens[:n_passed] != tuple(committed[draft.base :]):
        return ()
    return draft.tokens[n_passed:]
