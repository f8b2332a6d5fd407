"""What the lead's settings say about conversations, for requests that do not say it themselves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ReasoningFormat = Literal["auto", "none", "deepseek"]


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """variables: of the chat template. prefill: an assistant's message at the end is continued.

    reasoning_format: none leaves reasoning in the answer; auto and deepseek give it apart. verbose: answers
    tell the prompt as it was rendered.
    """

    variables: Mapping[str, Any] = field(default_factory=dict)
    reasoning_format: ReasoningFormat = "auto"
    prefill: bool = True
    verbose: bool = False
