"""Defaults from the lead's settings for fields that a chat request omits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ReasoningFormat = Literal["auto", "none", "deepseek"]


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """variables: of the chat template. prefill: continue an assistant message at the end.

    reasoning_format: `none` leaves reasoning in the content; `auto` and `deepseek` separate it. verbose:
    answers contain the rendered prompt. parse_special: texts of control tokens in messages are those tokens.
    keep_billing_header: prompts contain Claude Code's, which is different in each request.
    """

    variables: Mapping[str, Any] = field(default_factory=dict)
    reasoning_format: ReasoningFormat = "auto"
    prefill: bool = True
    verbose: bool = False
    parse_special: bool = False
    keep_billing_header: bool = False
