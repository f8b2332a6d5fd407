"""Measures the gain of drafts for a lead: the tokens per second that it would not have without them."""

import logging
import math
from dataclasses import dataclass
from typing import Final

log = logging.getLogger("back")

SECONDS: Final = 5.0
"""Seconds of work between two log lines on a terminal."""
SECONDS_IN_A_FILE: Final = 60.0
_MIN_GAIN: Final = 0.05
"""The minimum number of gained tokens per token of the lead's own. Below it, a back wastes its power."""
_MAX_STEP_TOKENS: Final = 256
"""An update with more tokens is a part of a prompt."""
_GOOD_SHARE: Final = 0.4
"""The minimum share of right tokens; below it, drafts are wrong rather than late."""


@dataclass(slots=True)
class _Outcomes:
    """Counts since the last log line. n_gained: right tokens that steps added to the lead's own tokens."""

    seconds: float = 0.0
    n_tokens: int = 0
    n_gained: int = 0
    n_right: int = 0
    n_wrong: int = 0


class DraftWorth:
    """Counts the draft tokens for one lead, and logs a line for every `seconds` of work. Reads no clock."""

    def __init__(self, seconds: float, lead: str = "") -> None:
        """lead: the name that begins each line; empty: no name."""
        self._seconds = seconds
        self._prefix = f"{lead}: " if lead else ""
        self._count = _Outcomes()
        self._last: float | None = None  # when tokens came; None: nothing has come since the lead was idle
        self._was_worth = True

    def rest(self) -> None:
        """Record that the lead has no sequence to draft for: time does not count until its next tokens."""
        self._last = None

    def learn(self, n_tokens: int, n_right: int, n_wrong: int, now: float) -> None:
        """Record that `n_tokens` tokens were committed: `n_right` of them were drafted, and `n_wrong`
        replaced a wrong draft token.
        """
        if n_tokens > _MAX_STEP_TOKENS:
            return
        count = self._count
        if self._last is not None:
            count.seconds += now - self._last
            count.n_tokens += n_tokens
            count.n_right += n_right
            count.n_wrong += n_wrong
            # The last token of a step is the lead's own; one that came alone was drafted too late.
            count.n_gained += min(n_right, n_tokens - 1)
        self._last = now
        if count.seconds >= self._seconds:
            self._count = _Outcomes()
            self._report(count)

    def _report(self, count: _Outcomes) -> None:
        rate, share = count.n_gained / count.seconds, _share(count.n_right, count.n_wrong)
        is_worth = count.n_gained >= _MIN_GAIN * (count.n_tokens - count.n_gained)
        if is_worth:
            log.info("%s+%.1f tokens/s, %.0f %% right", self._prefix, rate, 100 * share)
        elif self._was_worth:
            log.info("%snot worth it: +%.1f tokens/s, because %s", self._prefix, rate, _reason(share))
        self._was_worth = is_worth


def _share(n_right: int, n_wrong: int) -> float:
    """Return the share of right tokens; NaN if no tokens were drafted."""
    n = n_right + n_wrong
    return n_right / n if n else math.nan


def _reason(share: float) -> str:
    if math.isnan(share):
        return "all drafts came too late: `back doctor` shows why"
    if share < _GOOD_SHARE:
        return f"only {100 * share:.0f} % of draft tokens are right: try a model of the lead's family"
    return f"{100 * share:.0f} % of draft tokens are right but late: try a smaller model or a faster network"
