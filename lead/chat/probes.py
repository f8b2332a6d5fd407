"""Probes of chat templates in common: known texts are rendered, and found again."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

QUESTION, CONTENT = "questionprobe", "contentprobe"
ASKED = {"role": "user", "content": QUESTION}
ANSWERED = {"role": "assistant", "content": CONTENT}


class Render(Protocol):
    """The prompt of messages; None if the template refuses them."""

    def __call__(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        opened: bool = False,
        **variables: object,
    ) -> str | None:
        """tools: in OpenAI's format. opened: with the beginning of an answer."""
