"""The seam to drafters inside the engine's process."""

from collections.abc import Sequence
from typing import Protocol


class LocalDrafter(Protocol):
    """Drafts for one sequence."""

    def draft(self, tokens: Sequence[int], max_tokens: int) -> tuple[list[int], list[float]]:
        """(tokens, confidences) to follow the committed `tokens`; at most `max_tokens`."""
