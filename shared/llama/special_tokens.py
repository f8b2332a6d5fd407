"""Finds special tokens in text as llama.cpp's `tokenizer_st_partition` does, but in linear time.

llama.cpp walks a linked list from its beginning for every occurrence, so its time grows with the square of
the number of occurrences. Here the result is the same, and occurrences can be excluded.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_SPACE = " \t\n\v\f\r"
"""The characters that C's isspace accepts."""
_N_PREFIX = 2

Fragment = str | int
"""Plain text, or the id of a special token."""


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A token that is found in text before the text is tokenized.

    control: found only if the caller trusts the text. strips_left, strips_right: it absorbs white space on
    that side.
    """

    id: int
    text: str
    control: bool
    strips_left: bool = False
    strips_right: bool = False


class SpecialTokens:
    """Finds the special tokens of a vocabulary in texts."""

    def __init__(self, tokens: Iterable[SpecialToken]) -> None:
        # llama.cpp: the longest first (in bytes), everywhere in the text, before the next one is looked for.
        ordered = sorted(tokens, key=lambda token: (-len(token.text.encode("utf-8", "replace")), token.id))
        self._order = [token for token in ordered if token.text]
        self._by_prefix = defaultdict[str, list[tuple[int, SpecialToken]]](list)
        for rank, token in enumerate(self._order):
            self._by_prefix[token.text[:_N_PREFIX]].append((rank, token))

    @property
    def control(self) -> list[SpecialToken]:
        """The special tokens that are found only if the caller trusts the text."""
        return [token for token in self._order if token.control]

    def split(self, text: str, *, control: bool, breaks: Sequence[int] = ()) -> list[Fragment]:
        """Split `text` into plain text and special tokens.

        Without `control`, only user-defined tokens are found. breaks: ascending positions in `text`. A
        control token that contains such a position stays plain text, because only the texts on both sides
        together form the token.
        """
        ranges: list[tuple[int, int] | int] = [(0, len(text))] if text else []
        for token in self.occurring(text):
            if control or not token.control:
                inside = breaks if token.control else ()
                ranges = [part for each in ranges for part in _split(text, each, token, inside)]
        return [part if isinstance(part, int) else text[part[0] : part[1]] for part in ranges]

    def occurring(self, text: str) -> list[SpecialToken]:
        """Return the tokens whose text occurs in `text`, in the order in which they are matched."""
        found = (
            ranked
            for prefix, tokens in self._by_prefix.items()
            if prefix in text
            for ranked in tokens
            if ranked[1].text in text
        )
        return [token for _, token in sorted(found, key=lambda ranked: ranked[0])]


def _split(
    text: str, part: tuple[int, int] | int, token: SpecialToken, breaks: Sequence[int]
) -> Iterator[tuple[int, int] | int]:
    """Yield the ranges of `text` between the occurrences of `token`, and the token for each occurrence."""
    if isinstance(part, int):
        yield part
        return
    start, end = part
    while (at := find_unbroken(text, token.text, start, end, breaks)) >= 0:
        left = at
        while token.strips_left and left > start and text[left - 1] in _SPACE:
            left -= 1
        if left > start:
            yield start, left
        yield token.id
        start = at + len(token.text)
        while token.strips_right and start < end and text[start] in _SPACE:
            start += 1
    if start < end:
        yield start, end


def find_unbroken(text: str, wanted: str, start: int, end: int, breaks: Sequence[int]) -> int:
    """Return the position of the first occurrence of `wanted` in `text[start:end]` without a position of
    `breaks` inside it; -1: there is no such occurrence.
    """
    while (at := text.find(wanted, start, end)) >= 0:
        next_break = bisect_right(breaks, at)
        if next_break == len(breaks) or breaks[next_break] >= at + len(wanted):
            return at
        start = at + 1
    return -1
