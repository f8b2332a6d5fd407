"""The messages of a conversation as clients send them."""

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

_TEXT_PARTS = {"text", "input_text", "output_text", "refusal"}


class ContentPart(BaseModel):
    """A part of a message. Only text is understood; a refusal is text, too."""

    model_config = ConfigDict(strict=True)

    type: str
    text: str = ""
    refusal: str = ""

    @property
    def value(self) -> str:
        return self.refusal if self.type == "refusal" else self.text


class FunctionCallParam(BaseModel):
    """What an assistant asked to be called."""

    model_config = ConfigDict(strict=True)

    name: Annotated[str, Field(min_length=1)]
    arguments: str | dict[str, Any] = "{}"

    @property
    def as_object(self) -> Any:
        """The arguments as JSON's values; text that is none stays text."""
        if isinstance(self.arguments, dict):
            return self.arguments
        try:
            return json.loads(self.arguments or "{}")
        except ValueError:
            return self.arguments

    @property
    def as_text(self) -> str:
        """The arguments as JSON text."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments, ensure_ascii=False)


class ToolCallParam(BaseModel):
    """A call in an assistant's message."""

    model_config = ConfigDict(strict=True)

    id: str | None = None
    type: str = "function"
    function: FunctionCallParam


class ChatMessage(BaseModel):
    """One turn of a conversation; further fields are passed on to the chat template."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: str | list[ContentPart] | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallParam] | None = None
    tool_call_id: str | None = None
    name: str | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _explain_content(cls, value: Any) -> Any:
        """One error that says what is wrong, rather than one for each thing that a content may be."""
        if isinstance(value, list):
            for part in value:
                _check_part(part)
        elif value is not None and not isinstance(value, str):
            raise PydanticCustomError("content", "a content is text, a list of parts, or null")
        return value

    @model_validator(mode="after")
    def _check_says_something(self) -> "ChatMessage":
        if "content" not in self.model_fields_set:
            if self.role != "assistant":
                raise PydanticCustomError("content", "every message but an assistant's has a content")
            if not self.tool_calls and not self.reasoning_content:
                raise PydanticCustomError("content", "an assistant's message has a content or tool_calls")
        return self

    @property
    def parts(self) -> list[str]:
        """The texts of the content."""
        if isinstance(self.content, list):
            return [part.value for part in self.content]
        return [self.content] if self.content else []

    def for_template(self) -> dict[str, Any]:
        """The fields for a chat template, apart from the content; tool_calls are still to be told."""
        fields: dict[str, Any] = {**(self.model_extra or {}), "role": self.role}
        if self.role == "function":
            fields["role"] = "tool"
        for name in ("reasoning_content", "tool_call_id", "name"):
            if (value := getattr(self, name)) is not None:
                fields[name] = value
        if self.tool_calls:
            fields["tool_calls"] = self.tool_calls
        return fields


def _check_part(part: Any) -> None:
    kind = part.get("type") if isinstance(part, dict) else None
    field = "refusal" if kind == "refusal" else "text"
    if kind in _TEXT_PARTS:
        if not isinstance(part.get(field), str):
            raise PydanticCustomError("part", 'a part is {{"type": "text", "text": "..."}}')
    elif isinstance(kind, str):
        medium = kind.removeprefix("input_").removesuffix("_url")
        raise PydanticCustomError(
            "part", "{medium} input is not supported: this model reads text", {"medium": medium}
        )
    else:
        raise PydanticCustomError("part", 'a part is {{"type": "text", "text": "..."}}')
