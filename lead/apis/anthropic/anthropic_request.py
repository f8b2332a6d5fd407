"""Requests of Anthropic's Messages API, converted to chat requests."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator

from lead.chat_format.fields import (
    MAX_MESSAGES,
    MAX_STOPS,
    MAX_TOOLS,
    AtMost,
    ConvertedRequest,
    NullIsDefault,
)
from lead.chat_format.request_parts import NO_TOOLS
from lead.chat_format.sampling_fields import SamplingFields
from lead.chat_format.unused_fields import ANTHROPIC, warn_left_out
from shared.errors import RequestError

# Claude Code begins the system prompt with such a line. It says nothing to a model, and `cch` changes with
# each request, so that hardly any of the prompt would be in the cache. What follows on the line is kept.
_BILLING_HEADER = re.compile(r"\Ax-anthropic-billing-header:(?:[ \t]*\w+=[^;\s]*;?)*[ \t]*\n?")
_OF_CLIENTS = ("bash_", "computer_", "memory_", "text_editor_")
"""Prefixes of tool types of Anthropic's API; clients, not Anthropic's servers, run tools of these types."""
Block = dict[str, Any]
# Not sets: a client may send a type that cannot be hashed.
_LEFT_OUT = ("tool_result", "redacted_thinking")
_NO_TEXT = ("thinking", "tool_use")
Blocks = Annotated[list[Block], AtMost(MAX_MESSAGES)]


class AnthropicMessage(BaseModel, strict=True):
    """A message: text, or blocks."""

    role: Literal["user", "assistant", "system"]
    content: str | Blocks


class AnthropicTool(BaseModel, strict=True):
    """A tool of the client."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any]


class AnthropicChoice(NullIsDefault, strict=True):
    """`tool_choice`: the tools that may or must be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class AnthropicThinking(BaseModel, strict=True):
    """`thinking`: whether the model reasons; the budget is ignored."""

    type: Literal["enabled", "disabled", "adaptive"]


class AnthropicFormat(BaseModel, strict=True):
    """The format of the text: JSON that matches a schema."""

    type: Literal["json_schema"]
    definition: dict[str, Any] = Field(alias="schema")


class AnthropicOutputConfig(BaseModel, strict=True):
    """The format of the answer, and how much to reason for it."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: AnthropicFormat | None = None


class MessagesRequest(ConvertedRequest, SamplingFields, NullIsDefault, strict=True):
    """The body of a request. Most fields may be missing when only tokens are counted."""

    unused: ClassVar = ANTHROPIC
    own_names: ClassVar = {
        "stop": "stop_sequences",
        "reasoning_effort": "output_config.effort",
        "response_format": "output_config.format",
        "parallel_tool_calls": "tool_choice",
    }

    messages: Annotated[list[AnthropicMessage], Field(min_length=1), AtMost(MAX_MESSAGES)]
    system: str | Blocks | None = None
    tools: Annotated[list[AnthropicTool], AtMost(MAX_TOOLS)] | None = None
    tool_choice: AnthropicChoice | None = None
    thinking: AnthropicThinking | None = None
    output_config: AnthropicOutputConfig | None = None
    output_format: AnthropicFormat | None = None  # where it was before output_config
    chat_template_kwargs: dict[str, Any] | None = None
    model: str | None = None
    private: bool | None = None
    max_tokens: int = Field(4096, ge=1)
    stop_sequences: Annotated[list[str], AtMost(MAX_STOPS)] | None = None
    stream: bool = False

    @field_validator("tools", mode="before")
    @classmethod
    def _leave_out_tools_of_servers(cls, tools: object) -> object:
        """Drop tools that only Anthropic's servers can run, because agents continue without them.

        Return an empty list if no tool is left, None if the client sent none.
        """
        if tools and isinstance(tools, list):
            return [tool for tool in tools if not _is_of_servers(tool)]
        return None if tools == [] else tools

    def to_chat(self, *, keep_billing_header: bool = False) -> dict[str, Any]:
        """Return the fields of a chat request; raises RequestError for blocks other than text and images."""
        chat: dict[str, Any] = {
            **self.sampling(),
            "messages": list(self._messages(keep_billing_header)),
            "model": self.model,
            "private": self.private,
            "max_tokens": self.max_tokens,
            "stop": self.stop_sequences,
            "stream": self.stream,
        }
        variables = dict(self.chat_template_kwargs or {})
        if self.thinking is not None:
            variables.setdefault("enable_thinking", self.thinking.type != "disabled")
        chat["chat_template_kwargs"] = variables
        config = self.output_config or AnthropicOutputConfig()
        if config.effort:
            chat["reasoning_effort"] = config.effort
        if given := config.format or self.output_format:
            chat["response_format"] = {"type": "json_schema", "schema": given.definition}
        if self.tools:
            chat["tools"] = [_tool(tool) for tool in self.tools]
        if self.tool_choice:
            chat |= _choice(self.tool_choice)
        return chat

    def _messages(self, keep_billing_header: bool) -> Iterator[dict[str, Any]]:
        system = [{"type": "text", "text": self.system}] if isinstance(self.system, str) else self.system
        if system and not keep_billing_header:
            system = list(_without_billing_header(system))
        if self.tools == []:
            system = [*(system or ()), {"type": "text", "text": NO_TOOLS}]
        if system:
            yield {"role": "system", "content": _text(system, "system")}
        for message in self.messages:
            if isinstance(message.content, str):
                yield {"role": message.role, "content": message.content}
            else:
                yield from _split(message.role, message.content)


def _without_billing_header(system: Sequence[Block]) -> Iterator[Block]:
    for block in system:
        text = block.get("text")
        if not isinstance(text, str) or not (header := _BILLING_HEADER.match(text)):
            yield block
        elif rest := text[header.end() :]:
            yield block | {"text": rest}


def _split(role: str, blocks: Sequence[Block]) -> Iterator[dict[str, Any]]:
    """Yield a message for each tool result among the blocks, then one message with the other blocks."""
    for block in blocks:
        if block.get("type") == "tool_result":
            yield {
                "role": "tool",
                "tool_call_id": str(block.get("tool_use_id", "")),
                "content": _result(block.get("content")),
            }
    others = [block for block in blocks if block.get("type") not in _LEFT_OUT]
    texts = [block for block in others if block.get("type") not in _NO_TEXT]
    if not others:
        return
    message: dict[str, Any] = {"role": role, "content": _content(texts)}
    if thought := "".join(str(b.get("thinking", "")) for b in others if b.get("type") == "thinking"):
        message["reasoning_content"] = thought
    if calls := [_call(block) for block in others if block.get("type") == "tool_use"]:
        message["tool_calls"] = calls
    yield message


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(block.get("input", {}), ensure_ascii=False)
    return {
        "id": str(block.get("id", "")),
        "type": "function",
        "function": {"name": block.get("name"), "arguments": arguments},
    }


def _result(content: object) -> str | list[Block]:
    if isinstance(content, list):
        return _content(content)
    return "" if content is None else str(content)


def _content(blocks: Sequence[Any]) -> str | list[Block]:
    """Return the blocks as one text, or as parts if there are images."""
    if not any(map(_is_image, blocks)):
        return _text(blocks, "messages")
    return [
        block if _is_image(block) else {"type": "text", "text": _text_of(block, "messages")}
        for block in blocks
    ]


def _is_image(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "image"


def _text(blocks: Sequence[Any], field: str) -> str:
    return "\n".join(_text_of(block, field) for block in blocks)


def _text_of(block: object, field: str) -> str:
    """Return the text of a block: a text, a document's text, or the name of a tool found by search.

    Raises RequestError for other blocks.
    """
    given = block if isinstance(block, dict) else {"type": None}
    kind, source = given.get("type", "text"), given.get("source")
    if kind == "document" and isinstance(source, dict) and source.get("type") == "text":
        text = source.get("data")
    elif kind in ("text", "tool_reference"):
        text = given.get("text" if kind == "text" else "tool_name")
    else:
        raise RequestError(f"{field}: {kind} input is not supported. This model reads only text", field)
    if not isinstance(text, str):
        raise RequestError(f"{field}: a {kind} block must have a text", field)
    return text


def _is_of_servers(tool: object) -> bool:
    """Return whether Anthropic's servers run a tool: it has a type of Anthropic's API instead of a schema.

    Raises RequestError for such a type if clients run the tool.
    """
    kind = tool.get("type") if isinstance(tool, dict) and "input_schema" not in tool else None
    if not isinstance(kind, str) or kind == "custom":
        return False
    if kind.startswith(_OF_CLIENTS):
        raise RequestError(
            f"tools: {kind} is built into Anthropic's models only. Give the tool an input_schema", "tools"
        )
    warn_left_out(f"tools: {kind}", "it runs on Anthropic's servers only")
    return True


def _tool(tool: AnthropicTool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description is not None:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _choice(choice: AnthropicChoice) -> dict[str, Any]:
    names = {"auto": "auto", "any": "required", "none": "none"}
    named = {"type": "function", "function": {"name": choice.name or ""}}
    return {
        "tool_choice": names.get(choice.type, named),
        "parallel_tool_calls": not choice.disable_parallel_tool_use,
    }
