"""The parts of a chat request: messages, offered tools, and the format of the answer."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError, from_json

from lead.chat_format.fields import MAX_MESSAGES, MAX_TOOLS, AtMost, NullIsDefault
from lead.chat_format.output_format import ReasoningMarkers
from lead.grammar.json_schema import JSON_OBJECT

UNSEEN = {"type": "text", "text": "[an image is left out here: this model reads text only]"}
"""The part that replaces an image from a tool, because an agent cannot continue after a refused request."""
NO_TOOLS = "No tools are available here: say so where you are asked to use one."
"""A text for the model if all of the client's tools are left out: without it, the model would invent results.
"""
_IMAGE_PARTS = {"image", "image_url", "input_image"}
_TEXT_PARTS = {"text", "input_text", "output_text", "refusal"}


class ImageUrl(BaseModel, strict=True):
    """The address of an image, or the image as a data URL."""

    url: str


class ContentPart(NullIsDefault, strict=True):
    """A part of a message: text (a refusal counts as text) or an image."""

    type: str = "text"
    text: str = ""
    refusal: str = ""
    image_url: ImageUrl | None = None

    @property
    def value(self) -> str:
        return self.refusal if self.type == "refusal" else self.text


class FunctionCallParam(NullIsDefault, strict=True):
    """The function and arguments of a tool call."""

    name: Annotated[str, Field(min_length=1)]
    arguments: str | dict[str, Any] = "{}"

    @property
    def as_object(self) -> Any:
        """The arguments as a JSON value; text that is not JSON stays text."""
        if isinstance(self.arguments, dict):
            return self.arguments
        try:
            return from_json(self.arguments or "{}")
        except ValueError:
            return self.arguments

    @property
    def as_text(self) -> str:
        """The arguments as JSON text."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments, ensure_ascii=False)


class ToolCallParam(NullIsDefault, strict=True):
    """A tool call in an assistant message."""

    id: str | None = None
    type: str = "function"
    function: FunctionCallParam


class ChatMessage(BaseModel, strict=True, extra="allow"):
    """A message of a conversation; unknown fields are passed on to the chat template."""

    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: str | Annotated[list[ContentPart], AtMost(MAX_MESSAGES)] | None = None
    reasoning_content: str | None = None
    tool_calls: Annotated[list[ToolCallParam], AtMost(MAX_TOOLS)] | None = None
    tool_call_id: str | None = None
    name: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_what_agents_send(cls, given: Any) -> Any:
        """Return the fields with vLLM's `reasoning`, OpenAI's old `function_call` and images of other APIs
        converted.
        """
        if not isinstance(given, dict):
            return given
        fields = dict(given)
        if isinstance(given.get("reasoning"), str):
            reasoning = fields.pop("reasoning")
            fields["reasoning_content"] = given.get("reasoning_content") or reasoning
        if isinstance(given.get("function_call"), dict) and not given.get("tool_calls"):
            fields["tool_calls"] = [{"function": fields.pop("function_call")}]
        if isinstance(given.get("content"), list):
            fields["content"] = [_image_part(part) or part for part in given["content"]]
        return fields

    @field_validator("content", mode="before")
    @classmethod
    def _explain_content(cls, value: Any) -> Any:
        """Raise one error for invalid content; pydantic would raise an error for each possible type."""
        if isinstance(value, list):
            for part in value:
                _check_part(part)
        elif value is not None and not isinstance(value, str):
            raise PydanticCustomError("content", "content must be text, a list of parts, or null")
        return value

    @model_validator(mode="after")
    def _check_not_empty(self) -> "ChatMessage":
        if "content" not in self.model_fields_set:
            if self.role != "assistant":
                raise PydanticCustomError(
                    "content", "a message must have content, unless it is an assistant message"
                )
            if not self.tool_calls and not self.reasoning_content:
                raise PydanticCustomError("content", "an assistant message must have content or tool_calls")
        return self

    @property
    def parts(self) -> list[str]:
        """The text of each part of the content."""
        if isinstance(self.content, list):
            return [part.value for part in self.content]
        return [self.content] if self.content else []

    def for_template(self) -> dict[str, Any]:
        """Return the fields for a chat template, with unconverted tool calls and without the content."""
        fields: dict[str, Any] = {**(self.model_extra or {}), "role": self.role}
        if self.role == "function":
            fields["role"] = "tool"
        for name in ("reasoning_content", "tool_call_id", "name"):
            if (value := getattr(self, name)) is not None:
                fields[name] = value
        if self.tool_calls:
            fields["tool_calls"] = self.tool_calls
        return fields


def _image_part(part: object) -> dict[str, Any] | None:
    """Return an image part in the format of OpenAI's chat; None for other parts."""
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str) or kind not in _IMAGE_PARTS:
        return None
    return {"type": "image_url", "image_url": {"url": image_url(part)}}


def image_url(part: Mapping[str, Any]) -> str:
    """Return the URL of an image part in the format of OpenAI, Anthropic or MCP; empty for other parts."""
    given = part.get("image_url", part.get("source"))
    if isinstance(given, dict) and given.get("type") != "base64":
        given = given.get("url")
    elif isinstance(given, dict) or given is None:
        data = (given or part).get("data")
        given = f"data:;base64,{data}" if isinstance(data, str) else ""
    return given if isinstance(given, str) else ""


def _check_part(part: Any) -> None:
    kind = part.get("type", "text") if isinstance(part, dict) else None
    if kind == "image_url":
        return
    if isinstance(kind, str) and kind not in _TEXT_PARTS:
        medium = kind.removeprefix("input_").removesuffix("_url")
        raise PydanticCustomError(
            "part", "{medium} input is not supported. This model reads only text", {"medium": medium}
        )
    field = "refusal" if kind == "refusal" else "text"
    if not isinstance(kind, str) or not isinstance(part.get(field), str):
        raise PydanticCustomError("part", 'a part must be {"type": "text", "text": "..."}')


class FunctionDefinition(BaseModel, strict=True, extra="allow"):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(NullIsDefault, strict=True, extra="allow"):
    """An entry of OpenAI's `tools`."""

    type: Literal["function"] = "function"
    function: FunctionDefinition

    def for_template(self) -> Mapping[str, Any]:
        """Return the tool in the form that templates expect, always with a description and parameters."""
        function = self.function.model_dump(exclude_none=True)
        parameters = {"type": "object", "properties": {}} | function.get("parameters", {})
        return {"type": "function", "function": {"description": "", **function, "parameters": parameters}}


class ToolChoiceFunction(BaseModel, strict=True):
    """The name of a tool."""

    name: str


class NamedToolChoice(NullIsDefault, strict=True):
    """A tool choice that names the tool to call."""

    type: Literal["function"] = "function"
    function: ToolChoiceFunction


ToolChoice = Literal["auto", "none", "required"] | NamedToolChoice


class NamedSchema(BaseModel, strict=True):
    """A JSON schema with a name. `strict` makes no difference: the grammar always applies."""

    name: str | None = None
    definition: dict[str, Any] | None = Field(None, alias="schema")


class ResponseFormat(BaseModel, strict=True):
    """The format of the content. llama-server's `json_object` may have a `schema` field."""

    type: Literal["text", "json_object", "json_schema"]
    definition: dict[str, Any] | None = Field(None, alias="schema")
    json_schema: NamedSchema | None = None

    def schema_of_content(self) -> dict[str, Any] | None:
        """Return the JSON schema of the content; None: any text is allowed."""
        match self.type:
            case "text":
                return None
            case "json_object":
                return self.definition or JSON_OBJECT
            case "json_schema":
                inner = self.json_schema.definition if self.json_schema else None
                return inner or self.definition or JSON_OBJECT


@dataclass(frozen=True, slots=True)
class TemplateInput:
    """The variables that a prompt is rendered from.

    tools: the tools in OpenAI's format. variables: the variables from --chat-template-kwargs and the client.
    open_answer: end the prompt where the assistant's answer begins. continues: the answer continues the last
    message, which is the assistant's.
    """

    messages: Sequence[ChatMessage]
    tools: Sequence[Mapping[str, Any]] = ()
    documents: Sequence[Mapping[str, Any]] | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    open_answer: bool = True
    continues: bool = False

    def continues_reasoning(self, markers: ReasoningMarkers) -> bool:
        """Return whether the answer continues reasoning that the client began, in the content or in
        `reasoning_content`.
        """
        last = self.messages[-1]
        content = "".join(last.parts)
        if not content:
            return self.continues and bool(last.reasoning_content)
        own = markers.split_own(content)
        return self.continues and own is not None and not own[1]
