"""How many tokens of prompts a step takes while other sequences are generating.

Few, so that those do not stall; but what is generated beside a prompt makes each of its steps longer, and
where slots have cells of their own it is a pass of its own over the weights. So where a step is quick, it
takes more (docs/performance.md, "eight long prompts").
"""

from shared.llama.batch_layout import TILE

STEP_SECONDS = 0.5
"""About how long a step may take because of prompts, where that is enough for more than the least chunk."""
STEP_SECONDS_OF_OWN_CELLS = 2.0
"""The same where slots have cells of their own: prompts are read a tenth faster than with 0.5 s."""
_WEIGHT = 0.3
"""Of the latest step in the average."""


class PromptChunk:
    """Learned from the steps that decoded prompts; at least `n_least` tokens, at most `n_most`."""

    def __init__(self, n_least: int, n_most: int, step_seconds: float = STEP_SECONDS) -> None:
        self._n_least, self._n_most = min(n_least, n_most), n_most
        self._step_seconds = step_seconds
        self._seconds: float | None = None  # for each token

    @property
    def n_tokens(self) -> int:
        """How many tokens of prompts the next step may take."""
        if self._seconds is None:
            return self._n_least
        n = int(self._step_seconds / self._seconds) // TILE * TILE
        return min(self._n_most, max(self._n_least, n))

    def learn(self, n_tokens: int, seconds: float) -> None:
        """A step with `n_tokens` tokens of prompts took `seconds`; short ones say nothing about long ones."""
        if n_tokens < self._n_least or seconds <= 0:
            return
        each = seconds / n_tokens
        self._seconds = each if self._seconds is None else (1 - _WEIGHT) * self._seconds + _WEIGHT * each
