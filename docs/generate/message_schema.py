"""The messages between back and lead as a JSON Schema, for programs in other languages."""

import json
from typing import Any

from pydantic import TypeAdapter

from shared.protocol import BackMessage, LeadMessage, Post, Reply


def message_schema() -> str:
    """One document: `BackMessage` and `LeadMessage` for the WebSocket, `Post` and `Reply` for HTTP."""
    parts: dict[str, Any] = {
        "BackMessage": BackMessage,
        "LeadMessage": LeadMessage,
        "Post": Post,
        "Reply": Reply,
    }
    _, schema = TypeAdapter.json_schemas(
        [(name, "validation", TypeAdapter(part)) for name, part in parts.items()],
        title="llama-duo: the messages between back and lead",
        ref_template="#/$defs/{model}",
    )
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema, indent=1) + "\n"
