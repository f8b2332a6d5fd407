"""The fields of a chat request that determine the prompt and the format of the answer."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from lead.chat_format.calls import AnyCallFormat, Tools, call_support
from lead.chat_format.fields import MAX_MESSAGES, MAX_TOOLS, AtMost
from lead.chat_format.request_parts import (
    ChatMessage,
    NamedToolChoice,
    ResponseFormat,
    TemplateInput,
    Tool,
    ToolChoice,
)
from lead.grammar.json_schema import JSON_OBJECT
from lead.settings.conversation import ConversationOptions, ReasoningFormat
from shared.errors import RequestError


class ConversationFields(BaseModel, strict=True):
    """The fields of a conversation. Absent or null fields have their defaults."""

    messages: Annotated[list[ChatMessage], Field(min_length=1), AtMost(MAX_MESSAGES)]
    documents: Annotated[list[dict[str, Any]], AtMost(MAX_MESSAGES)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    reasoning_format: ReasoningFormat | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    tools: Annotated[list[Tool], AtMost(MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    json_schema: dict[str, Any] | None = None
    grammar: str | None = None
    verbose: bool | None = None

    @property
    def usable_tools(self) -> list[Tool]:
        """The tools that may be called; raises RequestError if `tool_choice` needs a tool that is missing."""
        tools = self.tools or []
        if isinstance(self.tool_choice, NamedToolChoice):
            name = self.tool_choice.function.name
            tools = [tool for tool in tools if tool.function.name == name]
            if not tools:
                raise RequestError(f"tool_choice: the request has no tool {name!r}", "tool_choice")
        if self.tool_choice == "required" and not tools:
            raise RequestError("tool_choice: the request has no tools", "tool_choice")
        return [] if self.tool_choice == "none" else tools

    @property
    def must_call(self) -> bool:
        """True if the answer must be a call, without content."""
        return self.tool_choice == "required" or isinstance(self.tool_choice, NamedToolChoice)

    @property
    def one_call(self) -> bool:
        """True if at most one call may be made."""
        return self.parallel_tool_calls is False or isinstance(self.tool_choice, NamedToolChoice)

    @property
    def content_schema(self) -> Mapping[str, Any] | None:
        """The JSON schema of the content; None: any text is allowed."""
        if self._format_schema is not None:
            return self._format_schema
        return JSON_OBJECT if self.json_schema == {} else self.json_schema

    @property
    def schema_field(self) -> str:
        """The name of the request field that has the schema."""
        return "json_schema" if self._format_schema is None else "response_format"

    @property
    def _format_schema(self) -> Mapping[str, Any] | None:
        return self.response_format.schema_of_content() if self.response_format else None

    def _check_grammar(self) -> None:
        """Raise RequestError if both a grammar and another field set the form of the answer."""
        if self.grammar and self.usable_tools:
            raise RequestError("grammar: cannot be combined with tools", "grammar")
        if self.grammar and self.content_schema is not None:
            raise RequestError("grammar: cannot be combined with response_format or json_schema", "grammar")

    def conversation(
        self, options: ConversationOptions, tool_format: AnyCallFormat | None = None
    ) -> TemplateInput:
        """Return the input for a chat template.

        tool_format: the format of the template's calls; None: it writes no calls. Raises RequestError for a
        message that cannot be continued, and for fields that contradict each other.
        """
        self._check_grammar()
        tools = [tool.for_template() for tool in self.usable_tools]
        continues = self._continues(options)
        messages = self.messages
        if told := self._instructions(tools, tool_format):
            messages = _with_system(messages, told)
        return TemplateInput(
            messages=messages,
            tools=[] if told else tools,
            documents=self.documents,
            variables=self._variables(options),
            open_answer=continues or self.add_generation_prompt is not False,
            continues=continues,
        )

    def _instructions(self, tools: Tools, tool_format: AnyCallFormat | None) -> str:
        """Return a description of the tools if the template does not list them; else empty."""
        support = call_support()
        if support is None and (tools or any(message.tool_calls for message in self.messages)):
            raise RequestError(
                "tools: this lead was installed without support for tool calls (lead.tools)", "tools"
            )
        if support is None or tool_format is None or not tools:
            return ""
        return support.instructions(tool_format, tools, must_call=self.must_call)

    def _variables(self, options: ConversationOptions) -> Mapping[str, Any]:
        effort: dict[str, Any] = {"reasoning_effort": self.reasoning_effort} if self.reasoning_effort else {}
        if self.reasoning_effort == "none":
            effort = {"enable_thinking": False}
        variables = {**options.variables, **effort, **(self.chat_template_kwargs or {})}
        if not isinstance(variables.get("enable_thinking", True), bool):
            raise RequestError(
                "chat_template_kwargs.enable_thinking must be true or false", "chat_template_kwargs"
            )
        return variables

    def _continues(self, options: ConversationOptions) -> bool:
        if self.continue_final_message is None:
            return (
                options.prefill_assistant
                and self.add_generation_prompt is not True
                and self.messages[-1].role == "assistant"
                and self._check_continuable()
            )
        return self.continue_final_message and self._check_continuable()

    def _check_continuable(self) -> bool:
        name = "continue_final_message" if self.continue_final_message else "messages"
        if self.continue_final_message and self.add_generation_prompt:
            raise RequestError("continue_final_message and add_generation_prompt cannot be combined", name)
        *before, last = self.messages
        if last.role != "assistant":
            raise RequestError(f"{name}: only an assistant message can be continued", name)
        if last.tool_calls:
            raise RequestError(f"{name}: a message with tool calls cannot be continued", name)
        if before and before[-1].role == "assistant":
            raise RequestError(f"{name}: the conversation must not end with two assistant messages", name)
        return True


def _with_system(messages: list[ChatMessage], text: str) -> list[ChatMessage]:
    """Return the messages, with `text` at the end of the first system message."""
    first, *others = messages
    if first.role not in {"system", "developer"}:
        return [ChatMessage(role="system", content=text), *messages]
    system = "\n".join(first.parts)
    return [ChatMessage(role=first.role, content=f"{system}\n\n{text}"), *others]
