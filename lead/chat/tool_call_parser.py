"""Parsing one tool call while it is generated."""

import secrets

from lead.chat.deltas import Delta, ToolCallArguments, ToolCallStart
from lead.chat.json_stream import Member, decode

_NAMES = {"name", "tool_name"}
_ARGUMENTS = {"arguments", "parameters"}
_IDS = {"id", "tool_call_id"}
_MAX_NAME_CHARACTERS = 2048
"""The longest name of a tool, all escaped, is shorter."""


class ToolCallParser:
    """Emits the name first, even if the model writes the arguments first."""

    def __init__(self, index: int, known: frozenset[str] | None, id_characters: int) -> None:
        """`known` are the names of tools; None accepts any."""
        self._index = index
        self._known = known
        self._id_characters = id_characters
        self._id: str | None = None
        self._name_text = self._id_text = ""
        self._waiting: list[str] = []  # text of the arguments
        self._arguments_are_text: bool | None = None
        self._n_arguments = 0
        self.begun = False
        self.unknown = False
        """The name is not a tool's."""

    def begin(self, name: str, call_id: str | None) -> list[Delta]:
        """Start the call of the tool `name`."""
        self.begun = True
        return [ToolCallStart(self._index, call_id or self._id or _new_id(self._id_characters), name)]

    def arguments(self, text: str) -> list[Delta]:
        """Add text of the arguments."""
        self._n_arguments += len(text)
        return [ToolCallArguments(self._index, text)] if text else []

    def finish(self) -> list[Delta]:
        """End the call; its arguments are an empty object if there were none."""
        return [] if self._n_arguments else self.arguments("{}")

    def take(self, member: Member) -> list[Delta]:
        """Read more of a member of the call's object."""
        if member.key in _NAMES:
            return self._take_name(member)
        if member.key in _IDS:
            self._id_text = (self._id_text + member.text)[:_MAX_NAME_CHARACTERS]
            if member.done:
                self._id = _as_text(self._id_text)
        elif member.key in _ARGUMENTS:
            return self._take_arguments(member)
        return []

    def _take_name(self, member: Member) -> list[Delta]:
        self._name_text += member.text
        if len(self._name_text) > _MAX_NAME_CHARACTERS:
            self.unknown = True
        if self.unknown or not member.done or self.begun:
            return []
        name = _as_text(self._name_text)
        if not name or (self._known is not None and name not in self._known):
            self.unknown = True
            return []
        waiting, self._waiting = "".join(self._waiting), []
        return [*self.begin(name, None), *self.arguments(waiting)]

    def _take_arguments(self, member: Member) -> list[Delta]:
        if self._arguments_are_text is None and (begun := member.text.lstrip()):
            self._arguments_are_text = begun.startswith('"')
        self._waiting.append(member.text)
        if self._arguments_are_text and member.done:
            self._waiting = [_as_text("".join(self._waiting)) or "{}"]
            self._arguments_are_text = False
        if self._arguments_are_text or not self.begun:
            return []
        text, self._waiting = "".join(self._waiting), []
        return self.arguments(text)


def _as_text(value: str) -> str | None:
    try:
        decoded = decode(value)
    except ValueError:
        return None
    return decoded if isinstance(decoded, str) else str(decoded)


def _new_id(n_characters: int) -> str:
    """Mistral's templates require nine characters; otherwise an id in OpenAI's form."""
    return secrets.token_hex(n_characters)[:n_characters] if n_characters else f"call_{secrets.token_hex(12)}"
