"""Pauses speculation that gains nothing, and tries it again at increasing intervals."""

from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants

_MAX_LOSS = 0.5
"""The maximum loss counted for a step, in steps without drafts, as any step may have been interrupted."""
_PLAIN_GAIN = 0.1
"""The weight of a new sample of the time of a step during a pause."""


class Guard:
    """Pauses speculation when its balance of gains, measured in steps without drafts, is used up.

    The yield of a step is its expected number of tokens, since the actual number includes luck. Its cost is
    all time since the step before (waits, drafting, the engine's own time), relative to steps during pauses.
    So a loss of 1 % is noticed after a hundred steps. A trial fails when the balance has fallen by
    `guard_loss`, and succeeds when it has risen by as much. Each pause has several times as many steps as the
    one before.
    """

    def __init__(self, constants: SpeculationConstants = DEFAULTS) -> None:
        self._constants = constants
        self._plain = 1.0  # the time of a step in a pause, over T(n) without drafts
        self._balance = 0.0
        self._last_pause = 0  # its steps; 0: none since a trial has shown a gain
        self.n_left = 0
        """The remaining steps of the pause; 0: there is no pause."""
        self._seconds_left = 0.0
        self._n_sequences = 0

    @property
    def is_pausing(self) -> bool:
        return self.n_left > 0

    def reset(self) -> None:
        """Start over, after a change that affects whether drafts pay."""
        self._last_pause = 0
        self.resume()

    def resume(self) -> None:
        """Begin a trial of drafts after a pause."""
        self.n_left, self._balance = 0, 0.0

    def learn(self, n_sequences: int, n_expected: float, seconds: float, plain_seconds: float) -> None:
        """Record a step that was expected to yield `n_expected` tokens, `seconds` after the step before it.

        plain_seconds: T(n) without drafts.
        """
        ratio = seconds / plain_seconds
        if self.is_pausing:
            self._plain += _PLAIN_GAIN * (min(ratio, 1 + _MAX_LOSS) - self._plain)
            self._pass(n_sequences, seconds)
            return
        maximum = self._constants.guard_loss
        gain = n_expected / n_sequences - ratio / self._plain
        self._balance = min(maximum, self._balance + max(-_MAX_LOSS, gain))
        if self._balance == maximum:
            self._last_pause = 0
        elif self._balance < -maximum:
            self._pause(n_sequences)

    def _pause(self, n_sequences: int) -> None:
        constants = self._constants
        steps = max(constants.first_pause, constants.pause_growth * self._last_pause)
        self.n_left = self._last_pause = min(steps, constants.longest_pause)
        self._seconds_left = constants.longest_pause_s
        self._n_sequences = n_sequences

    def _pass(self, n_sequences: int, seconds: float) -> None:
        """Count a step of a pause; end the pause early if fewer sequences run, because drafts may pay again
        then.
        """
        self.n_left -= 1
        self._seconds_left -= seconds
        if self.n_left <= 0 or self._seconds_left < 0 or n_sequences < self._n_sequences:
            self.resume()
