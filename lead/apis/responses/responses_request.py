"""Requests of OpenAI's Responses API, converted to chat requests."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any, ClassVar, cast

from pydantic import BaseModel, Field

from lead.chat_format.fields import MAX_MESSAGES, MAX_STOPS, MAX_TOOLS, AtMost, ConvertedRequest
from lead.chat_format.request_parts import NO_TOOLS
from lead.chat_format.sampling_fields import SamplingFields
from lead.chat_format.unused_fields import RESPONSES, warn_left_out
from lead.settings.conversation import ReasoningFormat
from shared.errors import RequestError

_PASSED_ON = (
    *("model", "private", "stream", "stop", "parallel_tool_calls", "chat_template_kwargs"),
    "reasoning_format",
)
_STORED = {
    "previous_response_id": "Send all messages",
    "conversation": "Send all messages",
    "background": "Wait for the response",
}
_MAX_METADATA = 16
_MAX_INCLUDED = 64
_LOGPROBS = "message.output_text.logprobs"
_NO_FUNCTION = "the model can call only functions"
Item = dict[str, Any]


class TextOptions(BaseModel, strict=True):
    """The field `text`. format: has the schema itself, one level higher than `response_format` has it."""

    format: dict[str, Any] | None = None


class ReasoningOptions(BaseModel, strict=True):
    """The field `reasoning`. effort: how much the model reasons."""

    effort: str | None = None


class ResponsesRequest(ConvertedRequest, SamplingFields, strict=True):
    """The body of a request. Responses are not stored, so `previous_response_id` is refused."""

    unused: ClassVar = RESPONSES
    own_names: ClassVar = {
        "messages": "input",
        "prompt": "input",
        "max_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning.effort",
        "response_format": "text.format",
    }

    input: str | Annotated[list[Item], AtMost(MAX_MESSAGES)]
    instructions: str | None = None
    tools: Annotated[list[dict[str, Any]], AtMost(MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    max_output_tokens: int | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    background: bool | None = None
    metadata: (
        Annotated[
            dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
            AtMost(_MAX_METADATA),
        ]
        | None
    ) = None
    include: Annotated[list[str], AtMost(_MAX_INCLUDED)] | None = None
    model: str | None = None
    private: bool | None = None
    stream: bool | None = None
    stop: str | Annotated[list[str], AtMost(MAX_STOPS)] | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_format: ReasoningFormat | None = None

    def to_chat(self) -> dict[str, Any]:
        """Return the fields of a chat request; raises RequestError for unsupported fields."""
        for name, advice in _STORED.items():
            if getattr(self, name):
                raise RequestError(f"{name}: the lead stores no conversations. {advice}", name)
        if _LOGPROBS in (self.include or ()):
            raise RequestError(
                f"include: {_LOGPROBS}: not supported here. Use /v1/chat/completions", "include"
            )
        chat = {name: getattr(self, name) for name in _PASSED_ON} | self.sampling()
        chat |= {"messages": list(self._messages()), "max_tokens": self.max_output_tokens}
        if self.reasoning and self.reasoning.effort:
            chat["reasoning_effort"] = self.reasoning.effort
        if self.text and self.text.format:
            chat["response_format"] = _format(self.text.format)
        if self.tools:
            chat["tools"] = [
                _tool(tool | {"name": _flat_name(space, tool.get("name"))})
                for space, tool in self._functions()
            ]
        if self.tool_choice is not None:
            chat["tool_choice"] = _choice(self.tool_choice)
        return chat

    def names(self) -> dict[str, dict[str, Any]]:
        """Return the namespace and name of each function that has a namespace, by its name for the model.

        The model gets a single name that is made of both.
        """
        return {
            _flat_name(space, tool.get("name")): {"name": tool.get("name"), "namespace": space}
            for space, tool in self._functions()
            if space
        }

    def usable_tools(self) -> list[dict[str, Any]]:
        """Return the tools of type `function` and `namespace`; others are ignored."""
        return [tool for tool in self.tools or () if _type(tool) in {"function", "namespace"}]

    def _functions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each function with its namespace, if any; raises RequestError for an invalid namespace.

        Other tools are skipped, because agents continue without them.
        """
        for tool in self.tools or ():
            space, tools = "", cast("object", [tool])
            if _type(tool) == "namespace":
                space, tools = str(tool.get("name")), tool.get("tools")
            if not isinstance(tools, list) or not all(isinstance(each, dict) for each in tools):
                raise RequestError("tools: a namespace must have a list of tools", "tools")
            for each in tools:
                if _type(each) == "function":
                    yield space, each
                else:
                    warn_left_out(f"tools: {_type(each)}", _NO_FUNCTION)

    def _messages(self) -> Iterator[dict[str, Any]]:
        if self.instructions:
            yield {"role": "system", "content": self.instructions}
        if self.tools and not any(self._functions()):
            yield {"role": "system", "content": NO_TOOLS}
        if isinstance(self.input, str):
            yield {"role": "user", "content": self.input}
            return
        messages = (message for item in self.input if (message := _message(item)) is not None)
        for is_assistant, group in groupby(messages, lambda message: message["role"] == "assistant"):
            if is_assistant:
                yield _merged(list(group))
            else:
                yield from group


def _message(item: Item) -> dict[str, Any] | None:
    """Return the message of an item; None for searches, and for reasoning without (unencrypted) text."""
    match item.get("type", "message"):
        case "message":
            return {"role": item.get("role"), "content": item.get("content")}
        case "function_call" | "custom_tool_call" | "local_shell_call" as kind:
            return {"role": "assistant", "tool_calls": [_call(kind, item)]}
        case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
            return {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
        case "web_search_call":  # without what was found
            warn_left_out("input: web_search_call", "it ran on OpenAI's servers")
            return None
        case "reasoning":
            text = _reasoning(item.get("content") or item.get("summary") or [])
            return {"role": "assistant", "reasoning_content": text} if text else None
        case kind:
            raise RequestError(f"input: items of type {kind!r} are not supported", "input")


def _type(tool: Mapping[str, Any]) -> str:
    return str(tool.get("type", "function"))


def _flat_name(space: object, name: object) -> Any:
    return f"{space}__{name}" if space else name


def _call(kind: str, item: Item) -> dict[str, Any]:
    """Return a call in the history. The input of a tool that is not a function becomes its arguments."""
    name, arguments = item.get("name"), item.get("arguments") or "{}"
    if kind == "custom_tool_call":
        arguments = json.dumps({"input": item.get("input")}, ensure_ascii=False)
    elif kind == "local_shell_call":
        name, arguments = "local_shell", json.dumps(item.get("action"), ensure_ascii=False)
    return {
        "id": item.get("call_id"),
        "type": "function",
        "function": {"name": _flat_name(item.get("namespace"), name), "arguments": arguments},
    }


def _reasoning(parts: object) -> str:
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise RequestError("input: content and summary of a reasoning item must be lists of parts", "input")
    return "".join(str(part.get("text", "")) for part in parts)


def _merged(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return several messages of the assistant as one message."""
    merged: dict[str, Any] = {"role": "assistant"}
    contents = [message["content"] for message in messages if "content" in message]
    if contents:
        several = len(contents) > 1
        merged["content"] = [part for each in contents for part in _parts(each)] if several else contents[0]
    if reasoning := "".join(message.get("reasoning_content", "") for message in messages):
        merged["reasoning_content"] = reasoning
    if calls := [call for message in messages for call in message.get("tool_calls", ())]:
        merged["tool_calls"] = calls
    return merged


def _parts(content: object) -> list[Any]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []


def _format(given: dict[str, Any]) -> dict[str, Any]:
    if given.get("type") != "json_schema":
        return given
    return {
        "type": "json_schema",
        "json_schema": {key: given[key] for key in ("name", "schema") if key in given},
    }


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = {key: value for key, value in tool.items() if key != "type" and value is not None}
    return {"type": "function", "function": function}


def _choice(choice: str | dict[str, Any]) -> str | dict[str, Any]:
    if isinstance(choice, dict) and choice.get("type") == "function":
        name = _flat_name(choice.get("namespace"), choice.get("name"))
        return {"type": "function", "function": {"name": name}}
    return choice
