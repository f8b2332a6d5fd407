"""How many times faster than without drafts the lead has been of late."""

_DECAY = 0.98
"""Per step: about the last fifty count."""
_LEAST_STEPS = 8


class Gain:
    """Relative to plain decoding, so that it holds when the number of sequences changes."""

    def __init__(self) -> None:
        self._n_tokens = 0.0
        self._n_plain = 0.0
        self._n_steps = 0

    def learn(self, n_tokens: int, n_plain: float) -> None:
        """`n_tokens` were committed in the time in which `n_plain` would have been without drafts."""
        self._n_tokens = self._n_tokens * _DECAY + n_tokens
        self._n_plain = self._n_plain * _DECAY + n_plain
        self._n_steps += 1

    @property
    def value(self) -> float | None:
        """1: as fast as without; None: not known yet."""
        if self._n_steps < _LEAST_STEPS or self._n_plain <= 0:
            return None
        return self._n_tokens / self._n_plain
