"""Parsing tool calls while they are generated."""

import json
import re
import secrets
from collections.abc import Collection, Sequence

from lead.chat.deltas import Delta, ToolCallArguments, ToolCallStart
from lead.tools.json_stream import Member, decode

_NAMES = {"name", "tool_name"}
_ARGUMENTS = {"arguments", "parameters"}
_IDS = {"id", "tool_call_id"}
_MAX_NAME_CHARACTERS = 2048
"""The longest name of a tool, all escaped, is shorter."""


class ToolCallParser:
    """Emits the name first, even if the model writes the arguments first."""

    def __init__(
        self, index: int, known: frozenset[str] | None, id_characters: int, *, name_is_key: bool = False
    ) -> None:
        """known: the names of tools; None accepts any. name_is_key: of an object's only member."""
        self._index = index
        self._known = known
        self._id_characters = id_characters
        self._name_is_key = name_is_key
        self._id: str | None = None
        self._name_text = self._id_text = ""
        self._waiting: list[str] = []  # text of the arguments
        self._arguments_are_text: bool | None = None
        self._n_arguments = 0
        self.begun = False
        self.unknown = False
        """The name is not a tool's."""

    def begin(self, name: str, call_id: str | None) -> list[Delta]:
        self.begun = True
        return [ToolCallStart(self._index, call_id or self._id or new_id(self._id_characters), name)]

    def arguments(self, text: str) -> list[Delta]:
        self._n_arguments += len(text)
        return [ToolCallArguments(self._index, text)] if text else []

    def whole(self, deltas: Sequence[Delta]) -> list[Delta]:
        """All that was emitted of the call; control characters in strings of its arguments are escaped."""
        others = [delta for delta in deltas if not isinstance(delta, ToolCallArguments)]
        text = "".join(delta.text for delta in deltas if isinstance(delta, ToolCallArguments))
        return [*others, ToolCallArguments(self._index, _escaped(text))]

    def finish(self) -> list[Delta]:
        """End the call; its arguments are an empty object if there were none."""
        return [] if self._n_arguments else self.arguments("{}")

    def take(self, member: Member) -> list[Delta]:
        if self._name_is_key:
            begin = [] if self.begun else self.begin(_as_text(f'"{member.key}"') or member.key, None)
            return [*begin, *self._take_arguments(member)]
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


def new_id(n_characters: int) -> str:
    """Mistral's templates require nine characters; otherwise an id in OpenAI's form."""
    return secrets.token_hex(n_characters)[:n_characters] if n_characters else f"call_{secrets.token_hex(12)}"


def _escaped(text: str) -> str:
    """JSON as it is, or with the control characters of its strings escaped, if that makes it JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        try:
            return json.dumps(decode(text), ensure_ascii=False)
        except ValueError:
            pass
    return text


class HeldCall:
    """The text of a call since its marker, kept as it was written until its tool is known.

    False while nothing is held.
    """

    def __init__(self) -> None:
        self.release()

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def has_marker(self, marker: str) -> bool:
        return marker in self._markers

    def add_marker(self, space: str, marker: str) -> None:
        """A marker and the white space before it. If it turns out to begin no call, both are content."""
        if not self:
            self._n_content = len(space + marker)
        self._pieces.append(space + marker)
        self._markers.append(marker)

    def begin_object(self) -> None:
        """What comes next is a JSON object. If that is not a call and had no marker, its brace is content."""
        if not self:
            self._n_content = 1

    def add_separators(self, text: str) -> None:
        """Text between markers, or between a marker and the call; ignored if no marker came before."""
        if self:
            self._pieces.append(text)
            self.n_separators += len(text)

    def add(self, text: str) -> None:
        self._pieces.append(text)

    def release(self) -> None:
        """Hold nothing: it is a call."""
        self._pieces: list[str] = []
        self._markers: list[str] = []
        self._n_content = 0
        self.n_separators = 0
        """The number of characters between markers, and between a marker and the call."""

    def reject(self, rest: str) -> tuple[str, str]:
        """Hold nothing: it is not a call. Returns what is content, and what, with `rest`, is read again."""
        text, n_content = "".join([*self._pieces, rest]), self._n_content
        self.release()
        return text[:n_content], text[n_content:]


_CALL = re.compile(r"\s*+([\w.]+?)(?:\.call)?\((.*)\)\s*+", re.DOTALL)
_ARGUMENT = re.compile(r'(?<!\w)(\w++)\s*+=\s*+("(?:[^"\\]++|\\.)*+"|[^,"]++)')
"""Linear: it begins only where a word begins, and nothing is read in two ways."""
_INTERPRETERS = ("python", "ipython", "code_interpreter")


def parse_python_call(code: str, tools: Collection[str]) -> tuple[str, dict[str, object]] | None:
    """The tool and arguments of `name.call(key="value")`; other code is for the interpreter tool, if any."""
    call = _CALL.fullmatch(code)
    if call and call[1] in tools:
        return call[1], {key: _value(text) for key, text in _ARGUMENT.findall(call[2])}
    interpreter = next((name for name in _INTERPRETERS if name in tools), None)
    return (interpreter, {"code": code}) if interpreter and code.strip() else None


def _value(text: str) -> object:
    try:
        return decode(text)
    except ValueError:
        return text.strip()
