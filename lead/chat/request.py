"""The fields of a chat request that say what is told to the model."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lead.chat.message import Message
from lead.chat.options import ChatOptions, ReasoningFormat
from lead.chat.template import Conversation
from shared.errors import RequestError


class ConversationFields(BaseModel):
    """Fields that are absent or null take the default; unknown ones are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")

    messages: Annotated[list[Message], Field(min_length=1)]
    documents: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    reasoning_format: ReasoningFormat | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    def conversation(self, options: ChatOptions) -> Conversation:
        """What to render; raises RequestError for what cannot be continued."""
        continues = self._continues(options)
        return Conversation(
            messages=self.messages,
            documents=self.documents,
            variables=self._variables(options),
            open_answer=continues or self.add_generation_prompt is not False,
            continues=continues,
        )

    def _variables(self, options: ChatOptions) -> Mapping[str, Any]:
        variables = {**options.variables, **(self.chat_template_kwargs or {})}
        if not isinstance(variables.get("enable_thinking", True), bool):
            raise RequestError(
                "chat_template_kwargs.enable_thinking: it is true or false", "chat_template_kwargs"
            )
        if self.reasoning_effort == "none":
            return {"enable_thinking": False} | variables
        if self.reasoning_effort is not None:
            return {"reasoning_effort": self.reasoning_effort} | variables
        return variables

    def _continues(self, options: ChatOptions) -> bool:
        if self.continue_final_message is None:
            return (
                options.prefill
                and self.add_generation_prompt is not True
                and self.messages[-1].role == "assistant"
                and self._check_continuable()
            )
        return self.continue_final_message and self._check_continuable()

    def _check_continuable(self) -> bool:
        name = "continue_final_message" if self.continue_final_message else "messages"
        if self.continue_final_message and self.add_generation_prompt:
            raise RequestError(
                "continue_final_message and add_generation_prompt: a message is either continued or begun",
                name,
            )
        *before, last = self.messages
        if last.role != "assistant":
            raise RequestError(f"{name}: only an assistant's message can be continued", name)
        if last.tool_calls:
            raise RequestError(f"{name}: a message with tool calls cannot be continued", name)
        if before and before[-1].role == "assistant":
            raise RequestError(f"{name}: of two assistant's messages at the end neither is continued", name)
        return True
