"""The format of a model's tool calls; `lead.tools.call_probes` derives it from a chat template."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lead.chat_format.markers import MARKER
from lead.tools.notation import type_name

NAME, ID, NUMBER = "\ue000", "\ue001", "\ue002"
"""Placeholders for the tool's name, the call's id and the call's number, in the texts of a format."""

_NAME_PATTERN = r"(?P<name>[\w.:/-]+?)"
_AGAIN = r"[\w.:/-]*?"
_ID_PATTERN = r"(?P<id>[\w.:-]*?)"
_NAME_AND_REST = r"(?P<name>[\w.:/-]+)(?:(?![\w.:/-]).*)?"
"""A name and all text up to a JSON object. That text is ignored, because models write it incorrectly."""
_NUMBERED = re.compile(rf"(\w+\.)?{NAME}:{NUMBER}")
"""Kimi's ids: the tool's name with the call's number."""
_PLACE = f"[{NAME}{ID}{NUMBER}]"
_OPEN_MARKER, _WORD = rf"<[^<>\s{NAME}{ID}{NUMBER}]*", rf"[^\s<`\[{NAME}{ID}{NUMBER}]+"
_PIECE = re.compile(rf"{MARKER.pattern}|{_PLACE}|\s+|{_OPEN_MARKER}|{_WORD}|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TaggedArguments:
    """The texts around arguments that are written one by one, not as a JSON object.

    key: the text before a name. middles: the texts between name and value, by the value's JSON type. close:
    the text after a value. between: the text between two arguments. quotes: the texts around strings; empty:
    strings are written unquoted.
    """

    key: str
    middles: Mapping[str, str]
    close: str = ""
    between: str = ""
    quotes: tuple[str, str] = ("", "")
    escaped: tuple[str, str] = ("", "")
    """The texts around strings that contain text like the format's marks."""


@dataclass(frozen=True, slots=True)
class CallFormat:
    """The texts around calls.

    head, tail: the texts around the arguments of a call. before, after: the texts around all calls of an
    answer. between: the text between two calls; None if an answer has only one call. arguments: the format of
    arguments; None: they are a JSON object. starts: texts that may begin calls in an answer; empty if a call
    is only a JSON object. id_characters: the length of call ids; 0: the template requires none. code_tag: a
    text that begins a call, which may be written as code. is_generic: the whole answer is JSON, even if the
    model was trained on another format. is_described: the template does not list tools, so they must be
    described in words.
    """

    head: str
    tail: str = ""
    before: str = ""
    between: str | None = None
    after: str = ""
    arguments: TaggedArguments | None = None
    starts: tuple[str, ...] = ()
    id_characters: int = 0
    code_tag: str = ""
    is_generic: bool = False
    is_described: bool = False
    ends: tuple[str, ...] = ()
    """Texts without meaning between calls and after them; if empty, made of the texts of the other fields."""
    header: re.Pattern[str] | None = field(init=False)
    """Matches the text between a start and the arguments; None if the name is a member of a JSON object."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ends", self.ends or self._ends())
        object.__setattr__(
            self,
            "header",
            None if self.is_object else _header(self.head, before_object=self.arguments is None),
        )

    @property
    def is_object(self) -> bool:
        """True if a call is one JSON object, with the tool's name and the arguments."""
        return self.arguments is None and "{" in self.head

    @property
    def around_content(self) -> tuple[str, str]:
        """The texts before and after JSON content in a format where every answer is JSON; else two empty
        texts.
        """
        return ('{"response": ', "}") if self.is_generic else ("", "")

    @property
    def json_only(self) -> bool:
        """True if a JSON object without any marker is a call."""
        return self.is_object and not self.starts and not self.is_generic

    @property
    def is_bare(self) -> bool:
        """True if there are markers only around all calls together, not around each call."""
        return self.head.startswith(NAME)

    @property
    def closing(self) -> tuple[str, ...]:
        """The text that may follow the last of several arguments."""
        first = _PIECE.match(self.tail.strip())
        return tuple(dict.fromkeys([*([first[0]] if first else []), *self.ends]))

    @property
    def name_is_key(self) -> bool:
        """True if a call's object has one member, whose key is the tool's name."""
        return self.head.endswith(f'{{"{NAME}": ')

    def frame(self, name: str, number: object = 0, call_id: str = "") -> tuple[str, str]:
        """Return the texts before and after the arguments of a call of the tool `name`.

        number: the number of the call in the answer.
        """
        called = call_id or "0" * max(1, self.id_characters)
        places = {NAME: self.written_name(name), ID: called, NUMBER: str(number)}

        def filled(text: str) -> str:
            return re.sub(_PLACE, lambda place: places[place[0]], text)

        return filled(self.head), filled(self.tail)

    def written_name(self, name: str) -> str:
        """Return a tool's name in the text of a call."""
        return json.dumps(name, ensure_ascii=False)[1:-1] if self.is_object else name

    def write(self, calls: Sequence[tuple[str, Any]]) -> str:
        """Return the text in which the model writes these calls, given as (name, arguments)."""
        written = []
        for number, (name, arguments) in enumerate(calls):
            head, tail = self.frame(name, number)
            written.append(f"{head}{self._write(arguments)}{tail}")
        return f"{self.before}{(self.between or '').join(written)}{self.after}"

    def _write(self, arguments: Any) -> str:
        style = self.arguments
        if style is None or not isinstance(arguments, dict):
            return json.dumps(arguments, ensure_ascii=False)
        opening, closing = style.quotes
        pieces = []
        for name, value in arguments.items():
            is_text = isinstance(value, str)
            text = json.dumps(value, ensure_ascii=False)
            if is_text:
                text = repr(value) if opening == "'" else f"{opening}{value}{closing}"
            middle = style.middles.get(type_name(value), style.middles["string"])
            pieces.append(f"{style.key}{name}{middle}{text}{style.close}")
        return style.between.join(pieces)

    def markers(self) -> tuple[str, ...]:
        """Return all texts of the format that may contain control tokens."""
        arguments = self.arguments or TaggedArguments("", {})
        texts = (self.before, self.head, self.tail, self.between or "", self.after)
        tagged = (arguments.key, *arguments.middles.values(), arguments.close, *arguments.quotes)
        pieces = (piece for text in (*texts, *tagged) for piece in re.split(_PLACE, text))
        return tuple(dict.fromkeys(filter(None, (*self.starts, *pieces, self.code_tag))))

    def _ends(self) -> tuple[str, ...]:
        brackets = {",", ";", "[", "]"} if self.is_object else set()
        texts = " ".join((self.before, self.tail.lstrip("}"), self.between or "", self.after))
        found = {piece for piece in _PIECE.findall(texts) if piece.strip(f" \n\t{{}}{NAME}{ID}{NUMBER}")}
        starts = "".join(self.starts)
        return tuple(sorted(brackets | {each for each in found if '"' not in each and each not in starts}))

    def header_length(self, text: str) -> int:
        """Return the length of the header at the beginning of `text`, up to the arguments.

        `text` follows a start. Returns -1 if `text` ends before the arguments.
        """
        if self.arguments is None:
            return text.find("{")
        if last := re.split(_PLACE, self.head)[-1].strip():
            n_times = self.head[self.head.find(NAME) :].count(last)
            parts = text.split(last, n_times)
            return len(text) - len(parts[-1]) if len(parts) > n_times else -1
        marks = (self.arguments.key.strip(), *self.ends)
        return min((at for mark in marks if mark and (at := text.find(mark)) >= 0), default=-1)


def _header(head: str, *, before_object: bool) -> re.Pattern[str]:
    """Return a pattern for `head` after a start, with single blanks as white space. Groups: name, id."""
    if numbered := _NUMBERED.search(head):
        named = rf"(?P<id>(?:{re.escape(numbered[1] or '')})?{_NAME_PATTERN}(?::\d+)?)"
        around = head[: numbered.start()], head[numbered.end() :]
        return re.compile(named.join(_pattern(text, optional=True) for text in around))
    places = [at for at, c in enumerate(head) if c in {NAME, ID, NUMBER}]
    before, inner, after = head[: places[0]], head[places[0] : places[-1] + 1], head[places[-1] + 1 :]
    pattern = _pattern(before, optional=True) + _pattern(inner, optional=False)
    if before_object and inner == NAME:
        pattern = pattern.removesuffix(_NAME_PATTERN) + _NAME_AND_REST
    else:
        pattern += _pattern(after, optional=True)
    return re.compile(pattern, re.DOTALL)


def _pattern(text: str, *, optional: bool) -> str:
    """Return a pattern for `text` in which white space is a single blank or missing.

    optional: each piece may be missing, because models leave out pieces.
    """
    pattern = " ?"
    for piece in _PIECE.findall(text):
        if piece == NAME:
            pattern += _AGAIN if _NAME_PATTERN in pattern else _NAME_PATTERN
        elif piece == ID:
            pattern += _ID_PATTERN
        elif piece == NUMBER:
            pattern += r"\d*"
        elif piece.strip():
            pattern += rf"(?:{re.escape(piece)}){'?' if optional else ''} ?"
    return pattern
