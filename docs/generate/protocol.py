"""The messages between back and lead, and values of their shared noise, for programs in other languages."""

import json
from typing import Any, get_args

import numpy as np
from pydantic import TypeAdapter

from docs.generate.blocks import table
from shared.protocol import BackMessage, LeadMessage, Post, Reply
from shared.sampling.noise import gumbel

_LEADS_OWN = ("source", "received_at")
"""Fields that the lead sets itself."""
_EXAMPLES = [(0, 0, 0), (1, 0, 0), (1, 7, 0), (1, 7, 1), (42, 100, 4095), (2**63 - 1, 131_071, 151_642)]


def message_schema() -> str:
    """A JSON Schema: `BackMessage` and `LeadMessage` for the WebSocket, `Post` and `Reply` for HTTP."""
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


def back_messages() -> str:
    """A table of the messages that a back sends, and their fields."""
    return _messages(BackMessage)


def lead_messages() -> str:
    """A table of the messages that a lead sends, and their fields."""
    return _messages(LeadMessage)


def _messages(union: Any) -> str:
    rows = []
    for message in get_args(get_args(union)[0]):
        name, about = message.model_fields["type"].default, " ".join((message.__doc__ or "").split())
        rows.append([f"`{name}`", "", about.rstrip(".")])
        rows += [
            ["", f"`{field}`", info.description or ""]
            for field, info in message.model_fields.items()
            if field not in ("type", *_LEADS_OWN)
        ]
    return table(["message", "field", ""], rows)


def noise_examples() -> str:
    """A table of (seed, position, token) and g."""
    rows = [
        [str(seed), str(position), str(token), f"{gumbel(seed, position, np.array([token]))[0]:.12f}"]
        for seed, position, token in _EXAMPLES
    ]
    return table(["seed", "position", "token", "g"], rows)
