"""Whether to speculate at all: where it gains nothing it pauses, and is tried again less and less often."""

from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants

_MAX_LOSS = 0.5
"""A step counts as so many steps without drafts too long, at most: any may have been interrupted."""
_PLAIN_GAIN = 0.1
"""The weight of a new sample in what a step takes during a pause: smooth against quick."""


class Guard:
    """Keeps a balance of what speculation gains, in steps without drafts, and pauses it when that is lost.

    What a step yields is what was expected of it: its tokens are that or luck. What it takes is all time
    since the step before, waits, drafting and the engine's own time among it, over what steps took in
    pauses. So a loss of 1 % is noticed, in a hundred steps. A trial ends when the balance is down by
    `guard_loss`, and has shown a gain when it is up by as much. Each pause takes twice as many steps as
    the one before it.
    """

    def __init__(self, constants: SpeculationConstants = DEFAULTS) -> None:
        self._constants = constants
        self._plain = 1.0  # what a step takes in a pause, over T(n) without drafts
        self._balance = 0.0
        self._last_pause = 0  # its steps; 0: none since a trial has shown a gain
        self.n_left = 0
        """Steps of the pause."""
        self._seconds_left = 0.0
        self._n_sequences = 0

    @property
    def is_pausing(self) -> bool:
        return self.n_left > 0

    @property
    def has_lost(self) -> bool:
        """Whether the last trial that has ended has shown a loss."""
        return self._last_pause > 0

    def reset(self) -> None:
        """Something has changed that decides whether drafts pay."""
        self._last_pause = 0
        self.resume()

    def resume(self) -> None:
        """Begin a trial."""
        self.n_left, self._balance = 0, 0.0

    def learn(self, n_sequences: int, n_expected: float, seconds: float, plain_seconds: float) -> None:
        """A step was expected to yield `n_expected` tokens, and took `seconds` since the one before it.

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
        steps = max(constants.first_pause, 2 * self._last_pause)
        self.n_left = self._last_pause = min(steps, constants.longest_pause)
        self._seconds_left = constants.longest_pause_s
        self._n_sequences = n_sequences

    def _pass(self, n_sequences: int, seconds: float) -> None:
        """With fewer sequences drafts may pay that did not."""
        self.n_left -= 1
        self._seconds_left -= seconds
        if self.n_left <= 0 or self._seconds_left < 0 or n_sequences < self._n_sequences:
            self.resume()
