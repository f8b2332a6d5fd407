"""Requests of Ollama's API, converted to chat requests."""

import json
from collections import deque
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field

from lead.chat_format.fields import (
    MAX_MESSAGES,
    MAX_STOPS,
    MAX_TOOLS,
    AtMost,
    ConvertedRequest,
    NullIsDefault,
    RequestFields,
)
from lead.chat_format.request_parts import Tool
from lead.chat_format.sampling_fields import SamplingFields
from lead.chat_format.unused_fields import OLLAMA, OLLAMA_OPTIONS
from shared.errors import RequestError
from shared.sampling.asked_fields import settable_parameters


class OllamaFunction(NullIsDefault, strict=True):
    name: str
    arguments: dict[str, Any] = {}  # noqa: RUF012


class OllamaToolCall(BaseModel, strict=True):
    function: OllamaFunction


class OllamaMessage(NullIsDefault, strict=True):
    """A message. tool_name: the tool's name, in a message with its result."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    thinking: str = ""
    images: Annotated[list[Any], AtMost(MAX_MESSAGES)] = []  # noqa: RUF012 - of a pydantic model
    tool_calls: Annotated[list[OllamaToolCall], AtMost(MAX_TOOLS)] = []  # noqa: RUF012
    tool_name: str | None = None


class OllamaOptions(SamplingFields, strict=True):
    """The `options` of a request: settings for generation."""

    unused: ClassVar = OLLAMA_OPTIONS
    inside: ClassVar = "options."

    num_predict: int | None = None
    num_keep: int | None = None
    stop: str | Annotated[list[str], AtMost(MAX_STOPS)] | None = None


class OllamaRequest(ConvertedRequest, RequestFields, NullIsDefault, strict=True):
    """The fields of requests to both `/api/chat` and `/api/generate`.

    As in Ollama, the answer is streamed unless `stream` is false.
    """

    unused: ClassVar = OLLAMA
    own_names: ClassVar = {
        "max_tokens": "options.num_predict",
        "response_format": "format",
        "reasoning_effort": "think",
        "n_keep": "options.num_keep",
        **{name: f"options.{name}" for name in ("stop", *settable_parameters())},
    }

    model: str = ""
    stream: bool = True
    format: Literal["", "json"] | dict[str, Any] = ""
    options: OllamaOptions = OllamaOptions()
    think: bool | Literal["low", "medium", "high"] | None = None
    keep_alive: float | str | None = None
    private: bool | None = None

    @property
    def unloads(self) -> bool:
        """True if a request without a prompt asks to unload the model rather than to load it."""
        return self.keep_alive in {0, "0", "0s", "0m"}

    def common(self) -> dict[str, Any]:
        """Return the fields of a chat request that do not depend on messages or a prompt."""
        options = self.options
        fields = {
            **options.sampling(),
            "stop": options.stop,
            "max_tokens": options.num_predict,
            "n_keep": options.num_keep,
        }
        if self.format:
            named = {"type": "json_object"} if self.format == "json" else {"type": "json_schema"}
            fields["response_format"] = named | ({} if self.format == "json" else {"schema": self.format})
        if isinstance(self.think, bool):
            fields["chat_template_kwargs"] = {"enable_thinking": self.think}
        else:
            fields["reasoning_effort"] = self.think
        return fields | {"private": self.private, "stream": self.stream}

    def content(self, text: str, images: list[Any], *, sees: bool) -> str | list[dict[str, Any]]:
        """Return the content of a message from its text and images.

        Raises RequestError for images, with Ollama's wording, unless the model `sees`.
        """
        if not images:
            return text
        if not sees:
            raise RequestError(f'"{self.model}" does not support vision', "images")
        return [*({"type": "image", "data": each} for each in images), {"type": "text", "text": text}]


class OllamaChatRequest(OllamaRequest):
    """The body of `/api/chat`; without messages it is a request to load or unload the model."""

    messages: Annotated[list[OllamaMessage], AtMost(MAX_MESSAGES)] = []  # noqa: RUF012
    tools: Annotated[list[Tool], AtMost(MAX_TOOLS)] = []  # noqa: RUF012

    @property
    def is_empty(self) -> bool:
        return not self.messages

    def to_chat(self, *, sees: bool = False) -> dict[str, Any]:
        """Return the fields of a chat request; raises RequestError for images unless the model `sees`."""
        tools = [tool.model_dump(exclude_unset=True) for tool in self.tools]
        return self.common() | {"messages": list(self._messages(sees=sees)), "tools": tools or None}

    def _messages(self, *, sees: bool) -> Iterator[dict[str, Any]]:
        """Yield the messages, with ids added to tool calls and their results.

        Ollama's API has no ids: its results are in the order of the calls.
        """
        n_calls = 0
        waiting: deque[str] = deque()
        for message in self.messages:
            content = self.content(message.content, message.images, sees=sees)
            fields: dict[str, Any] = {"role": message.role, "content": content}
            if message.thinking:
                fields["reasoning_content"] = message.thinking
            if message.tool_calls:
                ids = [f"call_{n_calls + i}" for i in range(len(message.tool_calls))]
                n_calls += len(ids)
                waiting = deque(ids)
                fields["tool_calls"] = list(map(_call, ids, message.tool_calls))
            if message.role == "tool":
                fields["tool_call_id"] = waiting.popleft() if waiting else ""
                fields |= {"name": message.tool_name} if message.tool_name else {}
            yield fields


class OllamaGenerateRequest(OllamaRequest):
    """The body of `/api/generate`: one question, or, with `raw`, a text to continue."""

    prompt: str = ""
    system: str = ""
    suffix: str = ""
    template: str = ""
    raw: bool = False
    images: Annotated[list[Any], AtMost(MAX_MESSAGES)] = []  # noqa: RUF012

    @property
    def is_empty(self) -> bool:
        return not self.prompt

    def to_chat(self, *, sees: bool = False) -> dict[str, Any]:
        """Return the fields of a chat request, or, with `raw`, of a text completion; raises RequestError."""
        content = self.content(self.prompt, self.images, sees=sees and not self.raw)
        if self.suffix:
            raise RequestError(f'"{self.model}" does not support insert', "suffix")
        if self.template:
            raise RequestError(
                "template: not supported in a request. Start the lead with --chat-template", "template"
            )
        if self.raw:
            fields = self.common()
            schema = fields.pop("response_format", {}).get("schema", {} if self.format else None)
            return fields | {"prompt": self.prompt, "json_schema": schema}
        system = [{"role": "system", "content": self.system}] if self.system else []
        return self.common() | {"messages": [*system, {"role": "user", "content": content}]}


class OllamaModelRequest(NullIsDefault, strict=True):
    """A request about a model, named by `model` or, from older clients, by `name`."""

    model: Annotated[str, Field(max_length=1000)] = ""
    name: Annotated[str, Field(max_length=1000)] = ""


def _call(call_id: str, call: OllamaToolCall) -> dict[str, Any]:
    arguments = json.dumps(call.function.arguments, ensure_ascii=False)
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": call.function.name, "arguments": arguments},
    }
