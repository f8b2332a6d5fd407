"""Parses the text of a complete tool call."""

import json
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass

from lead.tools.json_stream import decode, members

_NAMES = ("name", "tool_name")
_ARGUMENTS = ("arguments", "parameters")
_IDS = ("id", "tool_call_id")
CALL_KEYS = {*_NAMES, *_ARGUMENTS, *_IDS, "type", "function"}
"""The keys of JSON objects that are calls."""


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as the model wrote it. arguments: JSON text, perhaps invalid."""

    name: str
    arguments: str = "{}"
    id: str | None = None


def call_in(text: str, *, name_is_key: bool) -> WrittenCall | None:
    """Return the call in the JSON object `text`, which may be incomplete; None while its name is missing.

    name_is_key: the object has one member, whose key is the tool's name.
    """
    given = members(text)
    if name_is_key:
        key = next(iter(given), "")
        return WrittenCall(_as_text(f'"{key}"') or key, given[key] or "{}") if key else None
    name, arguments, call_id = (
        next((given[key] for key in keys if key in given), "") for keys in (_NAMES, _ARGUMENTS, _IDS)
    )
    if arguments.startswith('"'):
        arguments = _as_text(arguments) or ""
    named = _as_text(name)
    return WrittenCall(named, arguments or "{}", _as_text(call_id)) if named else None


def _as_text(value: str) -> str | None:
    try:
        decoded = decode(value)
    except ValueError:
        return None
    return decoded if isinstance(decoded, str) else str(decoded)


def new_id(n_characters: int) -> str:
    """Return a random call id: of `n_characters` for Mistral's templates, otherwise in OpenAI's form."""
    return secrets.token_hex(n_characters)[:n_characters] if n_characters else f"call_{secrets.token_hex(12)}"


def escaped(text: str) -> str:
    """Return the JSON `text` with control characters in its strings escaped.

    It is unchanged if it is valid already, or would still be invalid.
    """
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        try:
            return json.dumps(decode(text), ensure_ascii=False)
        except ValueError:
            pass
    return text


class HeldCall:
    """The text of a call from its marker on, kept as written until its tool is known.

    It is False while it is empty.
    """

    def __init__(self) -> None:
        self.release()

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def has_marker(self, marker: str) -> bool:
        return marker in self._markers

    def add_marker(self, space: str, marker: str) -> None:
        """Hold a marker and the white space before it. If no call follows, both become content."""
        if not self:
            self._n_content = len(space + marker)
        self._pieces.append(space + marker)
        self._markers.append(marker)

    def begin_object(self) -> None:
        """Hold the beginning of a JSON object.

        If the object is not a call and had no marker, its opening brace becomes content.
        """
        if not self:
            self._n_content = 1

    def add_separators(self, text: str) -> None:
        """Hold text between markers, or between a marker and the call; ignored if there was no marker."""
        if self:
            self._pieces.append(text)
            self.n_separators += len(text)

    def add(self, text: str) -> None:
        self._pieces.append(text)

    def release(self) -> None:
        """Drop the held text: it was a call."""
        self._pieces: list[str] = []
        self._markers: list[str] = []
        self._n_content = 0
        self.n_separators = 0
        """The number of characters between markers, and between a marker and the call."""

    def reject(self, rest: str) -> tuple[str, str]:
        """Drop the held text: it was not a call.

        Returns the part that is content, and the text to read again, which ends with `rest`.
        """
        text, n_content = "".join([*self._pieces, rest]), self._n_content
        self.release()
        return text[:n_content], text[n_content:]


_CALL = re.compile(r"\s*+([\w.]+?)(?:\.call)?\((.*)\)\s*+", re.DOTALL)
_ARGUMENT = re.compile(r'(?<!\w)(\w++)\s*+=\s*+("(?:[^"\\]++|\\.)*+"|[^,"]++)')
"""An argument. Matching takes linear time: a match begins only where a word begins, and in only one way."""
_INTERPRETERS = ("python", "ipython", "code_interpreter")


def parse_python_call(code: str, tools: Collection[str]) -> tuple[str, dict[str, object]] | None:
    """Return the tool and arguments of the call `name.call(key="value")`.

    Other code is a call of the interpreter tool; None if there is no such tool.
    """
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
