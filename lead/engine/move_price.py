"""What moving texts to host memory and back costs, against leaving them in a slot or reading them again."""

from collections.abc import Iterable

from shared.cache_edits import Snapshot
from shared.text_store import UNLIMITED, PromptCacheSize

_MIN_IDLE_STEPS = 4.0
"""On a CPU an idle text has cost the steps of others about as much by then as storing and loading it."""
_STEP_SHARE = 0.25
"""How much longer a step may take because of texts, where that is enough for more than a part."""
_WEIGHT = 0.3
"""The weight of the latest move in the average, beside one of as many bytes."""
_MAX_SURPRISE = 10.0
"""No move counts for more than this many times the usual price: the machine may have slept meanwhile."""
_MIN_SECONDS = 1e-9
_MAX_IDLE_STEPS, _MAX_PARTS = 10_000.0, 64
"""Whatever was measured, a text that nobody uses leaves its slot, and no step waits for gigabytes."""
_FORGOTTEN = 0.9
"""What is left of the price when a text was lost because of it."""


class MovePrice:
    """Learned from what was moved; until then as on a CPU.

    What anchors it: the seconds and bytes of the moves themselves, the latest ones above all. If the price
    stops all moves, `forget` lowers it until there is one again.
    """

    def __init__(self, size: PromptCacheSize, step_bytes: int) -> None:
        """step_bytes: weights that a step of one token reads; 0: unknown.

        With the time of that step they tell how fast memory is read, and so what cells of idle texts cost.
        """
        self._size = size
        self._step_bytes = step_bytes
        self._bytes = self._seconds = 0.0
        self.idle_steps = _MIN_IDLE_STEPS
        """After so many steps of others an idle text has cost them as much as storing and loading it."""
        self.n_step = size.n_part or UNLIMITED
        """Tokens of texts that move in a step beside others: a part, or several where that is quick."""
        self.token_seconds: float | None = None
        """The time in which a token of a prompt is read; None: unknown. Set by the scheduler."""

    def pays(self, n_tokens: int) -> bool:
        """Whether storing and loading a text of `n_tokens` is quicker than reading it again."""
        if self.token_seconds is None or not self._bytes:
            return True
        return 2 * self._size.of(n_tokens) * self._seconds / self._bytes < n_tokens * self.token_seconds

    def learn(self, moved: Iterable[Snapshot], seconds: float, step_seconds: float) -> None:
        """To store or load these took `seconds`; a step of one token takes `step_seconds`."""
        n_bytes = sum(self._size.of(text.end - text.start) for text in moved)
        if not n_bytes:
            return
        if self._bytes:
            usual = max(self._seconds, _MIN_SECONDS) * n_bytes / self._bytes
            seconds = min(seconds, _MAX_SURPRISE * usual)
        self._bytes = (1 - _WEIGHT) * self._bytes + _WEIGHT * n_bytes
        self._seconds = (1 - _WEIGHT) * self._seconds + _WEIGHT * seconds
        if not self._step_bytes:
            return
        each = max(self._seconds, _MIN_SECONDS) / self._bytes
        idle_steps = 2 * each * self._step_bytes / step_seconds
        self.idle_steps = min(max(_MIN_IDLE_STEPS, idle_steps), _MAX_IDLE_STEPS)
        if n_part := self._size.n_part:
            n_parts = int(_STEP_SHARE * step_seconds / (each * self._size.of(n_part)))
            self.n_step = n_part * min(max(1, n_parts), _MAX_PARTS)

    def forget(self) -> None:
        """A text was lost because of the price, which may have been that of a slow moment."""
        self._seconds *= _FORGOTTEN
