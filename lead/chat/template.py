"""The chat template of a model: from a conversation to the text of a prompt.

Templates differ in what they can tell a model. What one cannot (a system message, tools, tool results), is
told in the words of ordinary messages, as llama-server does it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from lead.chat.capabilities import TemplateCapabilities, detect_capabilities
from lead.chat.jinja import TemplateError, load_template
from lead.chat.message import ChatMessage, ToolCallParam
from lead.chat.reasoning import ReasoningMarkers, detect_reasoning
from lead.chat.tool_formats import ToolFormat, detect_ignored_markers, detect_tool_format
from shared.errors import RequestError


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is to be told to the model.

    tools: OpenAI's. variables: the client's `chat_template_kwargs`. continues: the answer continues the last
    message, which is the assistant's, instead of beginning a new one.
    """

    messages: Sequence[ChatMessage]
    tools: Sequence[Mapping[str, Any]] = ()
    documents: Sequence[Mapping[str, Any]] | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    open_answer: bool = True
    continues: bool = False


class ChatTemplate:
    """Renders conversations as the text of a prompt."""

    def __init__(self, source: str | None, bos: str, eos: str, tool_use: str | None = None) -> None:
        """`source` is Jinja, the name of a template of llama.cpp's, or None for ChatML.

        `bos` and `eos` are the texts of those tokens, which templates refer to; `tool_use` is a second
        template for conversations with tools. Raises ConfigError if one of them is no template.
        """
        self._plain = load_template(source)
        self._tool_use = load_template(tool_use) if tool_use else self._plain
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self._abilities = {
            id(program): detect_capabilities(program, self._tokens)
            for program in (self._plain, self._tool_use)
        }

    @property
    def source(self) -> str:
        """The template for conversations without tools."""
        return self._plain.source

    @property
    def tool_source(self) -> str:
        """The template for conversations with tools."""
        return self._tool_use.source

    @property
    def takes_tools(self) -> bool:
        """Whether the template tells the model of tools in the model's own way."""
        return self._abilities[id(self._tool_use)].tools

    @property
    def tool_format(self) -> ToolFormat:
        """How the model writes tool calls; GENERIC if the template does not tell it of tools."""
        return detect_tool_format(self.tool_source, takes_tools=self.takes_tools)

    @property
    def ignored_markers(self) -> tuple[str, ...]:
        """Marks in answers that mean nothing to a reader."""
        return detect_ignored_markers(self.source)

    @property
    def reasoning(self) -> ReasoningMarkers | None:
        """How the model marks its reasoning."""
        return detect_reasoning(self.source)

    def render(self, conversation: Conversation) -> str:
        """The prompt up to where the answer begins (or goes on); raises RequestError for what it refuses."""
        program = self._tool_use if conversation.tools else self._plain
        abilities = self._abilities[id(program)]
        messages = list(conversation.messages)
        continued = messages.pop() if conversation.continues else None
        told = _Telling(abilities).tell(messages)
        variables = {
            "documents": conversation.documents,
            **_dates(),
            **conversation.variables,
            **self._tokens,
            "messages": told,
            "tools": list(conversation.tools) or (None if abilities.no_tools_is_none else []),
            "functions": _json(list(conversation.tools)),
            "add_generation_prompt": conversation.open_answer or continued is not None,
        }
        try:
            text = program.run(variables)
        except TemplateError as error:
            raise RequestError(
                f"the model's chat template refuses these messages: {error}", "messages"
            ) from error
        return text if continued is None else text + self._beginning(text, continued)

    def _beginning(self, prompt: str, message: ChatMessage) -> str:
        """The beginning of an answer that was given by the client."""
        content, thought = "\n\n".join(message.parts), message.reasoning_content or ""
        if self.reasoning is None:
            return content
        return self.reasoning.resume(prompt, thought, content)


class _Telling:
    """Puts messages into the shape that a template digests."""

    def __init__(self, abilities: TemplateCapabilities) -> None:
        self._abilities = abilities

    def tell(self, messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
        told = [self._tell_one(message) for message in messages]
        if not self._abilities.system:
            told = _without_system(told)
        if self._abilities.typed_content:
            for message in told:
                message["content"] = [{"type": "text", "text": message["content"]}]
        return told

    def _tell_one(self, message: ChatMessage) -> dict[str, Any]:
        fields = message.for_template()
        fields["content"] = "\n".join(message.parts)
        if fields["role"] == "developer" and not self._abilities.developer:
            fields["role"] = "system"
        if self._abilities.thinking_field and message.reasoning_content:
            fields["thinking"] = message.reasoning_content
        if message.tool_calls:
            self._tell_calls(fields, message.tool_calls)
        if fields["role"] == "tool" and not self._abilities.tool_results:
            return _result_in_words(fields)
        return fields

    def _tell_calls(self, fields: dict[str, Any], calls: Sequence[ToolCallParam]) -> None:
        if not self._abilities.tool_results:
            del fields["tool_calls"]
            words = {
                "tool_calls": [{"name": c.function.name, "arguments": c.function.as_object} for c in calls]
            }
            fields["content"] = "\n".join(filter(None, [fields["content"], _json(words)]))
            return
        fields["tool_calls"] = [
            {
                "id": call.id or "",
                "type": "function",
                "function": {
                    "name": call.function.name,
                    "arguments": call.function.as_object
                    if self._abilities.object_arguments
                    else call.function.as_text,
                },
            }
            for call in calls
        ]


def _result_in_words(fields: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: fields[name] for name in ("tool_call_id", "name") if name in fields}
    return {"role": "user", "content": _json({"tool_response": {**named, "content": fields["content"]}})}


def _without_system(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """System messages as the beginning of the user's next one."""
    told: list[dict[str, Any]] = []
    pending: list[str] = []
    for message in messages:
        if message["role"] == "system":
            pending.append(message["content"])
            continue
        if pending and message["role"] != "user":
            told.append({"role": "user", "content": "\n".join(pending)})
        elif pending:
            message["content"] = "\n".join([*pending, message["content"]])
        pending = []
        told.append(message)
    if pending:
        told.append({"role": "user", "content": "\n".join(pending)})
    return told


def _dates() -> dict[str, str]:
    """What some templates (firefunction's, functionary's) ask for instead of `strftime_now`."""
    return {
        "date_string": datetime.now().astimezone().strftime("%d %b %Y"),
        "datetime": datetime.now(UTC).strftime("%b %d %Y %H:%M:%S GMT"),
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
