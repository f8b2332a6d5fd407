"""The seam to drafters inside the engine's process."""

from abc import ABC, abstractmethod
from collections.abc import Sequence


class LocalDrafter(ABC):
    """Drafts for one sequence."""

    @abstractmethod
    def draft(self, tokens: Sequence[int], max_tokens: int) -> tuple[list[int], list[float]]:
        """(tokens, confidences) to follow the committed `tokens`; at most `max_tokens`."""

    def close(self, tokens: Sequence[int]) -> None:  # noqa: B027 - most keep nothing
        """The sequence has ended with the committed `tokens`."""
