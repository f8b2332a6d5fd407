"""The chat template of a model: renders a conversation as the text of a prompt.

Templates differ in their support for system messages, tools and tool results. As in llama-server, unsupported
parts are written as text of ordinary messages.
"""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from lead.chat_format.answer_probes import derive_answer_format
from lead.chat_format.calls import AnyCallFormat, Tools, call_support
from lead.chat_format.fitting import STEPS, Lost, TemplateMessages, applied, fitting_steps
from lead.chat_format.jinja import (
    Template,
    TemplateCapabilities,
    TemplateError,
    date_variables,
    detect_capabilities,
    load_template,
)
from lead.chat_format.output_format import AnswerFormat, ReasoningMarkers, with_thinking
from lead.chat_format.probes import Render
from lead.chat_format.request_parts import ChatMessage, TemplateInput, ToolCallParam
from shared.errors import ConfigError, RequestError
from shared.limited_call import LimitError, call_limited
from shared.llama.vocabulary import Vocabulary
from shared.sandbox import MEGABYTE, WorkerLimits

TEMPLATE_SECONDS, TEMPLATE_BYTES = 2.0, 96 * MEGABYTE
"""The maximum CPU time and memory for finding out what a template supports; most take .05 seconds."""

_Known = tuple[TemplateCapabilities, TemplateCapabilities, AnyCallFormat | None, AnswerFormat]


class ChatTemplate:
    """Renders conversations as prompts, and knows how the model writes its answers."""

    def __init__(
        self,
        source: str | None,
        bos: str,
        eos: str,
        tool_use: str | None = None,
        known: _Known | None = None,
    ) -> None:
        """source: Jinja, the name of a template in llama.cpp, or None for ChatML.

        bos, eos: the texts of these tokens. tool_use: a second template, for conversations with tools. known:
        the features of the templates; None: run the templates to find out. Raises ConfigError for an invalid
        template.
        """
        self._plain = load_template(source)
        self._tool_use = load_template(tool_use) if tool_use else self._plain
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self.capabilities, self._tool_capabilities, self.tool_format, self.answers = known or self._detect()
        support = call_support()
        self._steps = support.steps(self.tool_format) if support and self.tool_format else STEPS

    @classmethod
    def from_untrusted(
        cls, source: str | None, bos: str, eos: str, tool_use: str | None, seconds: float = TEMPLATE_SECONDS
    ) -> Self:
        """Load an untrusted template; raises ConfigError if it is invalid, too slow or too big in memory."""
        try:
            known = call_limited(lambda: cls(source, bos, eos, tool_use).known, seconds, TEMPLATE_BYTES)
        except LimitError as error:
            raise ConfigError(
                f"the chat template cannot be used. For a short test message {error}"
            ) from error
        with WorkerLimits().memory(TEMPLATE_BYTES):  # a part that failed in the other process fails here, too
            return cls(source, bos, eos, tool_use, known)

    @property
    def known(self) -> _Known:
        """The template's features without and with tools, and the formats of calls and answers."""
        return self.capabilities, self._tool_capabilities, self.tool_format, self.answers

    def _detect(self) -> _Known:
        plain = detect_capabilities(self._plain, self._tokens)
        uses_other = self._tool_use is not self._plain
        with_tools = detect_capabilities(self._tool_use, self._tokens) if uses_other else plain
        answers = derive_answer_format(self._renderer(self._plain, plain), self.source)
        calls: AnyCallFormat | None = None
        if support := call_support():
            render = self._renderer(self._tool_use, with_tools)
            calls, as_object = support.derive(
                render, answers.unfinished, self._tool_use.source, lists_tools=with_tools.tools
            )
            with_tools = replace(with_tools, object_arguments=as_object)
        return plain if uses_other else with_tools, with_tools, calls, answers

    def _renderer(self, template: Template, capabilities: TemplateCapabilities) -> Render:
        """Return the function that probes call to render messages."""

        def render(
            messages: Sequence[Mapping[str, Any]],
            tools: Tools = (),
            *,
            opened: bool = False,
            **variables: object,
        ) -> str | None:
            given = [_typed(message) if capabilities.typed_content else message for message in messages]
            own = self._variables(given, tools, capabilities, opened=opened)
            try:
                return template.run({**own, **variables})
            except TemplateError:
                return None

        return render

    def _variables(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any],
        capabilities: TemplateCapabilities,
        *,
        opened: bool,
    ) -> dict[str, Any]:
        """Return the template's variables for these messages.

        opened: the prompt ends with the beginning of an answer.
        """
        given = copy.deepcopy(list(tools)) or (None if capabilities.no_tools_is_none else [])
        return {
            **date_variables(),
            **self._tokens,
            "messages": messages,
            "tools": given,
            "xml_tools": given,
            "functions": _json(list(tools)),
            "add_generation_prompt": opened,
        }

    @property
    def source(self) -> str:
        return self._plain.source

    @property
    def reasoning(self) -> ReasoningMarkers | None:
        return self.answers.reasoning

    def render(self, conversation: TemplateInput, mark: Callable[[Any], Any] = lambda value: value) -> str:
        """Return the prompt up to where the answer begins or continues; raises RequestError.

        mark: a function that is applied to the client's texts, at any depth, and may change them.
        """
        template, capabilities = self._plain, self.capabilities
        if conversation.tools:
            template, capabilities = self._tool_use, self._tool_capabilities
        messages = list(conversation.messages)
        continued = messages.pop() if conversation.continues else None
        opened = conversation.open_answer or continued is not None
        field = self.reasoning.field if self.reasoning else "reasoning_content"

        def run(given: TemplateMessages, tools: Sequence[Mapping[str, Any]]) -> str:
            parts = [_in_parts(each, field, capabilities) for each in given]
            return template.run(
                {
                    "documents": mark(conversation.documents),
                    **conversation.variables,
                    **self._variables(mark(parts), mark(list(tools)), capabilities, opened=opened),
                }
            )

        plain = [_as_fields(message, field, capabilities) for message in messages]
        prompt = self._fitting(plain, conversation.tools, run)
        return self._with_answer(prompt, continued, mark) if continued else prompt

    def _fitting(
        self, messages: TemplateMessages, tools: Tools, run: Callable[[TemplateMessages, Tools], str]
    ) -> str:
        """Bring the messages into a form that the template accepts, and return their prompt.

        Raises RequestError if there is no such form.
        """
        lost, reason, support = None, "", call_support()
        for change in (list, support.simple_tools) if support and tools else (list,):
            given = change(tools)

            def run_or_none(probes: TemplateMessages, given: Tools = given) -> str | None:
                nonlocal reason
                try:
                    return run(probes, given[:1])  # one tool is enough to see which messages it accepts
                except TemplateError as error:
                    reason = reason or str(error)
                    return None

            try:
                return run(applied(fitting_steps(messages, self._steps, run_or_none), messages), given)
            except Lost as error:
                lost = error.index
            except TemplateError as error:
                reason = str(error)
        if lost is not None:
            raise RequestError(f"messages.{lost}: the model's chat template omits this text", "messages")
        raise RequestError(f"the model's chat template refuses these messages: {reason}", "messages")

    def _with_answer(self, prompt: str, message: ChatMessage, mark: Callable[[str], str]) -> str:
        """Return the prompt with the answer so far, whose content may begin with reasoning in markers."""
        markers, content, reasoning = self.reasoning, "\n\n".join(message.parts), message.reasoning_content
        if markers is None:
            return prompt + mark(content)
        if not reasoning and (split := markers.split_own(content)):
            own, end, rest = split
            return markers.unopened(prompt) + markers.start + mark(own) + end + mark(rest)
        if reasoning and not markers.is_open(prompt):
            prompt = markers.unopened(prompt)
        return prompt + markers.resume(prompt, mark(reasoning or ""), mark(content))


def _typed(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the message with its content as a list of parts."""
    if not isinstance(message["content"], str):
        return message
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def _in_parts(
    message: Mapping[str, Any], field: str, capabilities: TemplateCapabilities
) -> Mapping[str, Any]:
    """Return the message; its content becomes a list of parts if the template requires that.

    field: the message field for reasoning.
    """
    if field == "content" and (reasoning := message.get("reasoning_content")):
        return {**message, "content": with_thinking(reasoning, message["content"])}
    return _typed(message) if capabilities.typed_content else message


def _as_fields(message: ChatMessage, field: str, capabilities: TemplateCapabilities) -> dict[str, Any]:
    """Return the message's fields as templates expect them. field: the name of the field for reasoning."""
    fields = message.for_template()
    fields["content"] = "\n".join(message.parts)
    if fields["role"] == "developer" and not capabilities.developer:
        fields["role"] = "system"
    if message.reasoning_content and field != "content":
        fields[field] = message.reasoning_content
    if message.tool_calls:
        fields["tool_calls"] = [_tool_call(call, capabilities) for call in message.tool_calls]
    return fields


def _tool_call(call: ToolCallParam, capabilities: TemplateCapabilities) -> dict[str, Any]:
    function = call.function
    arguments = function.as_object if capabilities.object_arguments else function.as_text
    return {
        "id": call.id or "",
        "type": "function",
        "function": {"name": function.name, "arguments": arguments},
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def model_template(vocabulary: Vocabulary, chosen: str | None) -> tuple[ChatTemplate, str | None]:
    """Return the chosen template, else the model's own, else ChatML; and any error in the model's own.

    After such an error, ChatML is used. Raises ConfigError if the chosen template is invalid.
    """
    bos, eos = vocabulary.bos_text, vocabulary.eos_text
    if chosen is not None:
        return ChatTemplate.from_untrusted(chosen, bos, eos, None), None
    info = vocabulary.info
    try:
        own = info.chat_template or info.tool_template
        return ChatTemplate.from_untrusted(own, bos, eos, info.tool_template), None
    except ConfigError as error:
        return ChatTemplate(None, bos, eos), str(error)
