"""All that speculation knows of one sequence: it begins and ends with it."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from lead.engine.drafters.draft_source import InlineDraft, LookupDrafter
from lead.engine.drafters.lookup import Followers
from lead.engine.speculation.arrivals import Timeline
from lead.engine.speculation.drafts import Drafts, DraftTree, TokenOutcome


class SequenceSpeculation:
    """`tokens` are the committed ones, a list that the scheduler extends."""

    def __init__(
        self, name: str, tokens: Sequence[int], lookups: Mapping[str, LookupDrafter], now: float
    ) -> None:
        """lookups: the drafters that need no model, by the names of their sources."""
        self.id = name
        self.tokens = tokens
        self.n_opened = len(tokens)
        self.lookups = lookups
        self.drafts = Drafts(tokens)
        self.timeline = Timeline(len(tokens), now)
        self.inline: InlineDraft | None = None  # of the drafter in the engine that takes its time
        self.stuck_at_step = -1  # the number of the step before which it gets no more inline tokens
        self._followers = Followers()
        self._n_right: dict[str, list[int]] = {}

    @property
    def n_pending(self) -> int | None:
        """See `InlineDraft.n_pending`."""
        return self.inline.n_pending if self.inline else None

    def ask_lookups(self, enough: int, max_tokens: int) -> None:
        """Have those draft again up to `max_tokens` that have less than `enough` left of the last draft."""
        for source, drafter in self.lookups.items():
            if len(self.drafts.branch(source)) < enough:
                tokens, confidences = drafter.draft(self.tokens, max_tokens)
                if tokens:
                    self.post(source, tokens, confidences)

    def post(self, source: str, tokens: Sequence[int], confidences: Sequence[float]) -> None:
        """A draft of the engine's own, after all committed tokens."""
        self.drafts.post(DraftTree(source, len(self.tokens), tokens, None, confidences))

    def guesses(self, drafted: Sequence[int], n: int) -> list[int]:
        """At most `n` guesses at what follows `drafted`: what followed before. Cheap, and often wrong."""
        return self._followers.follow(self.tokens, drafted[-1] if drafted else self.tokens[-1], n)

    def credit(self, outcomes: Iterable[TokenOutcome], received_at: float | None = None) -> None:
        """Count right tokens.

        received_at: when their draft came, in time for those that were committed later; None: for all.
        """
        for outcome in outcomes:
            if outcome.right:
                committed_at = None if received_at is None else self.timeline.passed(outcome.position)
                is_late = committed_at is not None and received_at is not None and received_at > committed_at
                counts = self._n_right.setdefault(outcome.source, [0, 0])
                counts[is_late] += 1

    def pop_right(self, *, except_of: Collection[str]) -> dict[str, tuple[int, int]]:
        """By source, the right tokens (in time, too late) that were counted since the last call."""
        if not self._n_right:
            return {}
        n_right, self._n_right = self._n_right, {}
        return {
            source: (n_in_time, n_late)
            for source, (n_in_time, n_late) in n_right.items()
            if source not in except_of
        }

    def close(self) -> None:
        """It has ended with its `tokens`."""
        for drafter in self.lookups.values():
            drafter.close(self.tokens)
