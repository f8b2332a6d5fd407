"""OpenAI's `response_format`."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lead.grammar import JSON_OBJECT


class NamedSchema(BaseModel):
    """`strict` makes no difference: the grammar always holds."""

    model_config = ConfigDict(strict=True)

    name: str | None = None
    definition: dict[str, Any] | None = Field(None, alias="schema")


class ResponseFormat(BaseModel):
    """The form of the content. llama-server's `json_object` may have a `schema` field."""

    model_config = ConfigDict(strict=True)

    type: Literal["text", "json_object", "json_schema"]
    definition: dict[str, Any] | None = Field(None, alias="schema")
    json_schema: NamedSchema | None = None

    def schema_of_content(self) -> dict[str, Any] | None:
        """The JSON schema; None for any text."""
        match self.type:
            case "text":
                return None
            case "json_object":
                return self.definition or JSON_OBJECT
            case "json_schema":
                inner = self.json_schema.definition if self.json_schema else None
                return inner or self.definition or JSON_OBJECT
