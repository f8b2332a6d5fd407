"""Options for conversations: how they are rendered as prompts, and how answers are parsed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from shared.errors import ConfigError
from shared.settings.options import OptionError, OptionGroup

ReasoningFormat = Literal["auto", "none", "deepseek"]
"""`none` leaves reasoning in the content; `auto` and `deepseek` separate it."""


class ConversationOptions(OptionGroup):
    """Options of the chat template and of reasoning; the defaults for fields that a chat request omits."""

    chat_template: str | None = Field(
        None,
        description="chat template: a name that llama.cpp knows (chatml, llama3, …) or Jinja source. "
        "Default: the template in the model's metadata",
    )
    chat_template_file: Path | None = Field(None, description="file with the chat template")
    chat_template_kwargs: str | None = Field(
        None,
        description="additional variables for the chat template, as a JSON object such as "
        '{"enable_thinking": false}',
    )
    reasoning_format: ReasoningFormat = Field(
        "auto",
        description="field for reasoning: message.reasoning_content (deepseek, auto) or message.content "
        "(none)",
    )
    reasoning: Literal["on", "off", "auto"] = Field(
        "auto",
        description="reasoning before the answer: on, off or auto. Sets enable_thinking for chat templates "
        "that support it",
    )
    prefill_assistant: bool = Field(
        True, description="continue the last message of a conversation if the assistant wrote it"
    )

    parse_special: bool = Field(
        False,
        description="read the text of a control token in messages and tools as a control token, as "
        "llama-server does. By default, only the chat template can write control tokens",
    )

    keep_billing_header: bool = Field(
        False,
        description="keep the x-anthropic-billing-header in system prompts of /v1/messages. Claude Code "
        "changes it in each request, so almost no prompt token can then be reused",
    )

    @field_validator("chat_template_kwargs")
    @classmethod
    def _check_is_object(cls, value: str | None) -> str | None:
        try:
            is_valid = value is None or isinstance(json.loads(value), dict)
        except ValueError:
            is_valid = False
        if not is_valid:
            raise ValueError("must be a JSON object")
        return value

    @model_validator(mode="after")
    def _check_one_template(self) -> Self:
        if self.chat_template_file is not None and self.chat_template is not None:
            raise OptionError("chat_template_file", "cannot be combined with --chat-template")
        return self

    def template(self) -> str | None:
        """Return the chosen chat template; None: the model's. Raises ConfigError if its file cannot
        be read.
        """
        if self.chat_template_file is None:
            return self.chat_template
        try:
            return self.chat_template_file.read_text("utf-8")
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"cannot read the chat template {self.chat_template_file}: {error}") from error

    @property
    def variables(self) -> Mapping[str, Any]:
        # As in llama-server: enable_thinking is set even for "auto", because some templates take its absence
        # for "off".
        given: dict[str, Any] = json.loads(self.chat_template_kwargs or "{}")
        return {"enable_thinking": self.reasoning != "off"} | given
