"""The tools that a client offers, and which of them the model may or must call."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lead.chat.nulls import NullIsDefault


class FunctionDefinition(BaseModel):
    """A function that the model may call; `parameters` is a JSON schema."""

    model_config = ConfigDict(strict=True, extra="allow")

    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(NullIsDefault):
    """OpenAI's `tools`."""

    model_config = ConfigDict(strict=True, extra="allow")

    type: Literal["function"] = "function"
    function: FunctionDefinition

    def for_template(self) -> Mapping[str, Any]:
        """The tool as templates expect it, always with a description and parameters."""
        function = self.function.model_dump(exclude_none=True)
        return {
            "type": "function",
            "function": {"description": "", "parameters": {"type": "object", "properties": {}}} | function,
        }


class ToolChoiceFunction(BaseModel):
    """The name of a tool."""

    model_config = ConfigDict(strict=True)

    name: str


class NamedToolChoice(NullIsDefault):
    """The choice of a tool that must be called."""

    model_config = ConfigDict(strict=True)

    type: Literal["function"] = "function"
    function: ToolChoiceFunction


ToolChoice = Literal["auto", "none", "required"] | NamedToolChoice

_TOOLS_PROMPT = (
    "You can call tools. They are, with JSON schemas of their parameters:\n\n%s\n\n"
    'Answer with JSON only: {"tool_calls": [{"name": NAME, "arguments": {...}}]} to call tools, %s'
)
_MAY_CALL = 'or {"response": ...} with what you have to say.'
_MUST_CALL = "and call at least one."


def tools_prompt(tools: Sequence[Mapping[str, Any]], *, must_call: bool) -> str:
    """The tools as text of a system message, for templates without a known tool format."""
    listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    return _TOOLS_PROMPT % (listed, _MUST_CALL if must_call else _MAY_CALL)
