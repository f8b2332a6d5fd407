"""Recognizes the beginning of a call in an answer, up to the arguments, where a grammar applies."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from lead.tools.call_format import ID, NAME, NUMBER, CallFormat
from shared.sampling.call_grammars import NAME as GROUP

_PIECE = re.compile(rf"[{NAME}{ID}{NUMBER}]|\s+|[^\s{NAME}{ID}{NUMBER}]+")
_OF_NAME = r"\w.:/-"


class CallBeginnings(NamedTuple):
    """Regular expressions for the text before a call's arguments; the fields are those of `CallGrammars`."""

    begins: str
    follows: str
    is_first: bool


def call_beginnings(calls: CallFormat, names: Iterable[str]) -> CallBeginnings | None:
    """Return the beginnings of calls of tools with these names.

    None if the end of a call cannot be recognized. The expressions match the texts that
    `lead.chat_format.parser` reads as a call: the last text of `starts`, and all of the head after it, with a
    tool's name. A start alone is not enough, as it occurs in ordinary text, too.
    """
    if calls.is_generic or not (calls.arguments is None or calls.tail.strip()):
        return None
    whole = calls.before + calls.head
    at = max((whole.rfind(start) for start in calls.starts), default=-1)
    is_first = at < 0
    begins = _expression(calls.head if is_first else whole[at:], names)
    is_marked = at >= len(calls.before)
    follows = "" if is_marked or calls.between is None else _expression(calls.head, names)
    before = "" if not follows else rf"\s*(?:{_expression(calls.between or '', ())})?\s*"
    return CallBeginnings(begins, before + follows, is_first)


def _expression(text: str, names: Iterable[str]) -> str:
    """Return an expression for the text with one of the names, and with any white space."""
    pieces = _PIECE.findall(text.strip())
    one = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    expression = ""
    for piece in pieces:
        if piece == NAME:
            expression += f"(?P={GROUP})" if f"(?P<{GROUP}>" in expression else f"(?P<{GROUP}>{one})"
        elif piece in {ID, NUMBER}:
            expression += f"[{_OF_NAME}]*"
        else:
            expression += r"\s*" if piece.isspace() else re.escape(piece)
    return f"{expression}(?=[^{_OF_NAME}])" if pieces[-1:] == [NAME] else expression
