"""Shared code for probing chat templates: known texts are rendered, and searched in the result."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

QUESTION, CONTENT = "questionprobe", "contentprobe"
ASKED = {"role": "user", "content": QUESTION}
ANSWERED = {"role": "assistant", "content": CONTENT}


class Render(Protocol):
    """A function that renders messages as a prompt."""

    def __call__(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        opened: bool = False,
        **variables: object,
    ) -> str | None:
        """Return the rendered messages; None if the template fails or refuses them.

        tools: the tools in OpenAI's format. opened: the prompt ends with the beginning of an answer.
        """
