"""The beginnings of tool calls in an otherwise free answer, and the grammar for the rest of each call."""

from collections.abc import Mapping
from dataclasses import dataclass

NAME = "name"
"""The group of the expressions below that matches the name of the tool."""


@dataclass(frozen=True, slots=True)
class CallGrammars:
    """The beginnings of calls, and the grammars of their rest.

    begins: a regular expression for a call up to its arguments. follows: the same for a call directly after
    another. is_first: only reasoning may come before a call. reasoning: the texts before and after reasoning,
    in which no call begins; empty: there are none. said: the beginning of the answer, if the prompt contains
    it. grammars: the grammar of the text after such a beginning, by the name of the tool.
    """

    begins: str
    grammars: Mapping[str, str]
    follows: str = ""
    is_first: bool = False
    reasoning: tuple[str, str] = ("", "")
    said: bytes = b""
