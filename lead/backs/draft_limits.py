"""Limits on the drafts of a back: which drafts are accepted, and when the back is disconnected."""

from dataclasses import dataclass
from typing import Protocol

from lead.engine_client.sequences import LiveSequence
from shared.errors import ProtocolError
from shared.protocol import MAX_BACK_MESSAGE_BYTES, MAX_DRAFT_TOKENS, Draft
from shared.rate_limit import Bucket

MAX_INVALID_DRAFTS = 100
"""A back that sends more invalid drafts is broken or hostile, and is disconnected."""
ABUSE_FACTOR = 3
"""A back that keeps sending more than this multiple of a rate limit is disconnected. Smaller excess is only
dropped: the back may have a fast model and many sequences, and not know the limit."""
STALE_PART = 4
"""The rate limit of stale drafts is the limit on drafts divided by this number. A back that keeps exceeding
it is disconnected: stale drafts cost the front process as much as useful drafts."""
_TOLERATED_SECONDS = 10.0
"""The excess tolerated in a burst, in seconds of the rate limit."""
_SKIMMED_SECONDS = 0.5
"""When a back exceeds the rate limit of stale drafts by as many drafts as the limit allows in this time, the
lead reads only a sample of the back's drafts.
"""
_SAMPLE = 8
"""The sample is one draft in this many, so a back that becomes useful again loses little."""
PAUSE_SECONDS, _READING_SECONDS = 0.05, 0.005
"""The seconds for which the lead stops reading from such a back, and then reads again: a wake-up costs more
than a message."""


@dataclass(slots=True)
class BackStats:
    """Counts of a back's drafts and draft tokens. Used tokens are tokens that a step verified."""

    n_drafts: int = 0
    n_draft_tokens: int = 0
    n_used_tokens: int = 0
    n_accepted_tokens: int = 0
    n_stale_drafts: int = 0
    n_invalid_drafts: int = 0
    n_excess_drafts: int = 0


class BackLimits(Protocol):
    """The fields of `lead.settings.limits.RequestLimits` that concern backs."""

    @property
    def max_backs(self) -> int: ...

    @property
    def max_draft(self) -> int: ...

    @property
    def max_drafts_per_second(self) -> float: ...

    @property
    def max_draft_bytes_per_second(self) -> int: ...


class DraftLimits:
    """Checks and counts the drafts of one back."""

    def __init__(self, limits: BackLimits, n_vocab: int, now: float) -> None:
        """`now` is in seconds of any clock."""
        self.stats = BackStats()
        self._n_vocab = n_vocab
        self._max_draft = limits.max_draft
        self._drafts = _Allowance(limits.max_drafts_per_second, 1, "drafts", now)
        self._bytes = _Allowance(limits.max_draft_bytes_per_second, MAX_BACK_MESSAGE_BYTES, "bytes", now)
        self._stale_rate = rate = limits.max_drafts_per_second / STALE_PART
        maximum = max(1.0, rate * _TOLERATED_SECONDS)
        self._stale = Bucket(rate, maximum, now)
        self._skims_below = maximum - max(1.0, rate * _SKIMMED_SECONDS)
        self._n_skimmed = 0
        self._reads_again_at = now
        self._is_stale = False

    def admit(self, n_bytes: float, now: float) -> bool:
        """Return whether to read a message of `n_bytes`; raises ProtocolError to disconnect the back."""
        if self._is_stale:
            raise ProtocolError(
                f"more than {self._stale_rate:g} stale drafts per second: this back or its network is too "
                f"slow. The limit is 1/{STALE_PART} of --max-drafts-per-second"
            )
        if not (self._drafts.allow(1, now) and self._bytes.allow(n_bytes, now)):
            self.stats.n_drafts += 1
            self.stats.n_excess_drafts += 1
            return False
        return not self._skims(now) or self._is_sampled()

    def pause(self, now: float) -> float:
        """Return the seconds to stop reading from the back; its messages wait in the socket meanwhile."""
        if not self._skims(now) or now < self._reads_again_at + _READING_SECONDS:
            return 0.0
        self._reads_again_at = now + PAUSE_SECONDS
        return PAUSE_SECONDS

    def accept(self, draft: Draft, sequence: LiveSequence | None, *, is_open: bool, now: float) -> bool:
        """Return whether to pass a draft on to the engine; raises ProtocolError to disconnect the back.

        sequence: the running sequence that the draft names; None: there is none. is_open: the back has
        received the sequence.
        """
        n_skimmed, self._n_skimmed = self._n_skimmed, 0
        self.stats.n_drafts += 1 + n_skimmed
        self.stats.n_draft_tokens += len(draft.tokens)
        if sequence is None or _is_too_old(draft, len(sequence.tokens)):
            self.count_stale(1 + n_skimmed, now)  # most likely those are too
            return False
        self.stats.n_excess_drafts += n_skimmed
        if not is_open or not self._is_valid(draft, len(sequence.tokens)):
            self._count_invalid()
            return False
        return True

    def count_stale(self, n: int, now: float) -> None:
        self.stats.n_stale_drafts += n
        if not self._stale.take(now, n):
            self._is_stale = True

    def _skims(self, now: float) -> bool:
        return self._stale.left(now) < self._skims_below

    def _is_sampled(self) -> bool:
        if self._n_skimmed < _SAMPLE - 1:
            self._n_skimmed += 1
            return False
        return True

    def _is_valid(self, draft: Draft, n_committed: int) -> bool:
        return (
            draft.base <= n_committed
            and max(draft.tokens) < self._n_vocab
            and len(draft.tokens) <= self._max_draft
        )

    def _count_invalid(self) -> None:
        self.stats.n_invalid_drafts += 1
        if self.stats.n_invalid_drafts > MAX_INVALID_DRAFTS:
            raise ProtocolError(f"more than {MAX_INVALID_DRAFTS} invalid drafts")


class _Allowance:
    """A rate limit, and how much excess is dropped before the back is disconnected."""

    def __init__(self, rate: float, min_burst: float, unit: str, now: float) -> None:
        """rate: the limit per second. unit: what is limited, "drafts" or "bytes", for messages."""
        self._rate = rate
        self._unit = unit
        self._accepted = Bucket(rate, max(min_burst, rate), now)
        n_tolerated = max(min_burst, rate * _TOLERATED_SECONDS)
        self._dropped = Bucket(rate * (ABUSE_FACTOR - 1), n_tolerated, now)

    def allow(self, amount: float, now: float) -> bool:
        """Return whether `amount` more is within the limit; raises ProtocolError for a flood."""
        if self._accepted.take(now, amount):
            return True
        if not self._dropped.take(now, amount):
            option = "--max-draft-bytes-per-second" if self._unit == "bytes" else "--max-drafts-per-second"
            raise ProtocolError(
                f"more than {ABUSE_FACTOR} times {self._rate:g} {self._unit} per second ({option})"
            )
        return False


def _is_too_old(draft: Draft, n_committed: int) -> bool:
    """Return whether more tokens were committed since the draft's base than a draft can have."""
    return n_committed - draft.base > MAX_DRAFT_TOKENS
