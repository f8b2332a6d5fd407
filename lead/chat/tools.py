"""The tools that a client offers, and which of them the model may or must call."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class FunctionDefinition(BaseModel):
    """A function that the model may call; `parameters` is a JSON schema."""

    model_config = ConfigDict(strict=True, extra="allow")

    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(BaseModel):
    """OpenAI's `tools`."""

    model_config = ConfigDict(strict=True, extra="allow")

    type: Literal["function"] = "function"
    function: FunctionDefinition

    def for_template(self) -> Mapping[str, Any]:
        """As templates expect it: a description and parameters always stand there."""
        function = self.function.model_dump(exclude_none=True)
        return {
            "type": "function",
            "function": {"description": "", "parameters": {"type": "object", "properties": {}}} | function,
        }


class ToolChoiceFunction(BaseModel):
    """Which one."""

    model_config = ConfigDict(strict=True)

    name: str


class NamedToolChoice(BaseModel):
    """The one that must be called."""

    model_config = ConfigDict(strict=True)

    type: Literal["function"] = "function"
    function: ToolChoiceFunction


ToolChoice = Literal["auto", "none", "required"] | NamedToolChoice
