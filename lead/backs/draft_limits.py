"""Which drafts of a back are accepted, and when a back is disconnected for what it sends."""

from lead.backs.back_stats import BackStats
from lead.generation.sequences import LiveSequence
from lead.settings.limits import RequestLimits
from shared.bucket import Bucket
from shared.errors import ProtocolError
from shared.protocol import Draft

MAX_INVALID_DRAFTS = 100
"""A back that sends more invalid drafts is broken or hostile, and is disconnected."""
ABUSE_FACTOR = 3
"""A back that keeps sending more than this multiple of the rate limit is disconnected. Smaller excess is only
dropped: it may come from a back with a fast model and many sequences that does not know the limit."""
_ABUSE_SECONDS = 10.0
"""The excess drafts that a back may send in a burst: the rate limit times this many seconds."""


class DraftLimits:
    """Checks the drafts of one back, and counts them."""

    def __init__(self, limits: RequestLimits, n_vocab: int, stats: BackStats, now: float) -> None:
        """Counts in `stats`; `now` is in seconds."""
        self._n_vocab = n_vocab
        self._stats = stats
        self._max_draft = limits.max_draft
        self._rate = rate = limits.max_drafts_per_second
        self._accepted = Bucket(rate, max(1.0, rate), now)
        self._dropped = Bucket(rate * (ABUSE_FACTOR - 1), max(1.0, rate * _ABUSE_SECONDS), now)

    def accept(self, draft: Draft, sequence: LiveSequence | None, *, is_open: bool, now: float) -> bool:
        """Whether to pass a draft on to the engine; raises ProtocolError if the back is to be disconnected.

        `sequence` is the one that the draft names, if it is running; `is_open`: the back was told of it.
        """
        self._stats.n_drafts += 1
        self._stats.n_draft_tokens += len(draft.tokens)
        if not self._accepted.take(now):
            self._count_excess(now)
        elif sequence is None:
            self._stats.n_stale_drafts += 1
        elif not is_open or not self._is_valid(draft, len(sequence.tokens)):
            self._count_invalid()
        else:
            return True
        return False

    def _is_valid(self, draft: Draft, n_committed: int) -> bool:
        return (
            draft.base <= n_committed
            and max(draft.tokens) < self._n_vocab
            and len(draft.tokens) <= self._max_draft
        )

    def _count_invalid(self) -> None:
        self._stats.n_invalid_drafts += 1
        if self._stats.n_invalid_drafts > MAX_INVALID_DRAFTS:
            raise ProtocolError(f"more than {MAX_INVALID_DRAFTS} drafts were not valid")

    def _count_excess(self, now: float) -> None:
        self._stats.n_excess_drafts += 1
        if not self._dropped.take(now):
            raise ProtocolError(
                f"more than {ABUSE_FACTOR} times {self._rate:g} drafts per second (--max-drafts-per-second)"
            )
