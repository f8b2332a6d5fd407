"""The recent speed-up of the lead over decoding without drafts."""

from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants


class SpeedupEstimate:
    """The speed relative to decoding without drafts: it stays valid when the number of sequences changes."""

    def __init__(self, constants: SpeculationConstants = DEFAULTS) -> None:
        self._decay = constants.speedup_decay
        self._min_steps = constants.speedup_min_steps
        self._n_tokens = 0.0
        self._n_plain = 0.0
        self._n_steps = 0

    def learn(self, n_tokens: int, n_plain: float) -> None:
        """`n_tokens` were committed in the time that `n_plain` take without drafts."""
        self._n_tokens = self._n_tokens * self._decay + n_tokens
        self._n_plain = self._n_plain * self._decay + n_plain
        self._n_steps += 1

    @property
    def value(self) -> float | None:
        """1: as fast as without drafts; None: not known yet."""
        if self._n_steps < self._min_steps or self._n_plain <= 0:
            return None
        return self._n_tokens / self._n_plain
