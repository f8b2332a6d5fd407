"""The beginnings of tool calls in an answer that is free otherwise, and the grammar of each call's rest."""

from collections.abc import Mapping
from dataclasses import dataclass

NAME = "name"
"""The group with the name of a tool, in the expressions below."""


@dataclass(frozen=True, slots=True)
class CallGrammars:
    """begins: an expression for a call up to its arguments. follows: for one that follows another at once.

    is_first: nothing but reasoning comes before a call. reasoning: the texts around reasoning, in which no
    call begins; empty: none. said: what the answer goes on from. grammars: of all after such a beginning, by
    the name in it.
    """

    begins: str
    grammars: Mapping[str, str]
    follows: str = ""
    is_first: bool = False
    reasoning: tuple[str, str] = ("", "")
    said: bytes = b""
