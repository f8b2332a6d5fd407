"""What became of one HTTP request, gathered by those who work on it for the line that the log gets."""

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class RequestRecord:
    """`id` is also the header X-Request-Id. Counts are tokens of all the request's sequences."""

    id: str
    n_sequences: int = 0
    n_prompt: int = 0
    n_cached: int = 0
    n_generated: int = 0
    n_drafted: int = 0
    n_accepted: int = 0

    def __str__(self) -> str:
        """Empty if nothing was generated."""
        if not self.n_sequences:
            return ""
        text = f", prompt {self.n_prompt} tokens ({self.n_cached} cached), generated {self.n_generated}"
        if self.n_drafted:
            text += f", drafted {self.n_drafted}, accepted {self.n_accepted}"
        return text


current: ContextVar[RequestRecord | None] = ContextVar("request", default=None)
"""The record of the request that the running task works for."""
