"""Fields of requests that are accepted although nothing is done with them, or refused, as a table."""

import json
from collections.abc import Iterator

from docs.generate.blocks import table
from lead.chat_format import unused_fields as of
from lead.chat_format.unused_fields import Fields, Unused

_WHERE: tuple[tuple[str, Fields, Fields], ...] = (
    ("every API; Ollama's in `options`", of.SAMPLING, {}),
    ("OpenAI's three, `/completion`, `/infill`", of.OPENAI_LIKE, {}),
    ("OpenAI's chat and text, `/completion`, `/infill`", of.LLAMA_SERVER, of.SAMPLING | of.OPENAI_LIKE),
    ("OpenAI's chat and text", of.OPENAI, of.LLAMA_SERVER),
    ("`/completion`, `/infill`", of.NATIVE, of.LLAMA_SERVER),
    ("`/v1/responses`", of.RESPONSES, of.SAMPLING | of.OPENAI_LIKE),
    ("`/v1/messages`", of.ANTHROPIC, of.SAMPLING),
    ("Ollama's", of.OLLAMA, {}),
    ("Ollama's `options`", of.OLLAMA_OPTIONS, of.SAMPLING),
)
"""Where, which fields, and those that another row has."""


def unused_fields() -> str:
    """A row for the fields of an API that are accepted in the same way for the same reason."""
    return table(["in", "fields", "accepted", "why"], [row for each in _WHERE for row in _rows(*each)])


def _rows(where: str, fields: Fields, others: Fields) -> Iterator[list[str]]:
    alike: dict[tuple[str, str], list[str]] = {}
    for name, unused in fields.items():
        if others.get(name) != unused:
            alike.setdefault((_accepted(unused), unused.reason), []).append(f"`{name}`")
    for (accepted, reason), names in alike.items():
        yield [where, ", ".join(names), accepted, reason]


def _accepted(unused: Unused) -> str:
    if unused.harmless is None:
        return "always"
    values = [f"`{json.dumps(value)}`" for value in unused.harmless]
    values += [f"less than {unused.below}"] if unused.below is not None else []
    values += [f"the same as `{unused.same_as}`"] if unused.same_as else []
    values += [f"beside `{unused.beside}`"] if unused.beside else []
    return " or ".join(values) or "never"
