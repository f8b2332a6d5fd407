"""A vocabulary as a set of byte strings, with a tokenizer that reads any text."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_MAX_BYTE = 0xFF
_WORDS = re.compile(r"\s*\S{1,16}|\s+")
"""Matches a word with the white space before it. Long words, as in texts without white space, are cut."""
_STAND_INS = ("\ufffd".encode(), b"?", b" ")
"""Where no token fits, the first of these texts that is a token is read instead."""


class ReadToken(NamedTuple):
    """A token, and the bytes of the text that it was read from; normally the token's own bytes."""

    token: int
    data: bytes


class ByteVocabulary:
    """The bytes of every token, and a map from bytes to tokens."""

    def __init__(
        self, pieces: Sequence[bytes], tokenize: Callable[[str], Sequence[int]], preferred: Iterable[int] = ()
    ) -> None:
        """pieces: the bytes of each token; empty for tokens without text. tokenize: maps a text to tokens,
        without tokens that the text does not contain (BOS, a leading blank). preferred: tokens that represent
        others with the same bytes.
        """
        self.pieces = list(pieces)
        self.preferred = list(preferred)
        self._tokenize = tokenize
        self._token_of: dict[bytes, int] = {}
        repeated = set[bytes]()
        for token, piece in enumerate(self.pieces):
            if piece and self._token_of.setdefault(piece, token) != token:
                repeated.add(piece)
        self._token_of |= {piece: usual for piece in repeated if (usual := self._usual(piece)) is not None}
        self._token_of |= {self.pieces[token]: token for token in self.preferred}
        self._stand_in = next((self._token_of[each] for each in _STAND_INS if each in self._token_of), 0)
        order = sorted(range(len(self.pieces)), key=self.pieces.__getitem__)
        self._sorted = [self.pieces[token] for token in order]
        self.ranks: NDArray[np.int32] = np.empty(len(order), np.int32)
        """The rank of each token if all tokens are sorted by their bytes."""
        self.ranks[order] = np.arange(len(order), dtype=np.int32)
        self._n_longest = max(map(len, self.pieces), default=0)

    def __len__(self) -> int:
        return len(self.pieces)

    def token_of(self, data: bytes) -> int | None:
        """Return the token with exactly these bytes: of several tokens, a preferred token, else the
        tokenizer's choice.
        """
        return self._token_of.get(data)

    def continuing(self, prefix: bytes) -> tuple[int, int]:
        """Return the tokens that begin with `prefix` and are longer, as a half-open range of `ranks`."""
        start = bisect_right(self._sorted, prefix)
        after = _successor(prefix)
        return start, bisect_left(self._sorted, after, start) if after else len(self._sorted)

    def has_longer(self, prefix: bytes) -> bool:
        """Return whether a token begins with `prefix` and is longer."""
        start, end = self.continuing(prefix)
        return start < end

    def encode(self, data: bytes) -> list[int]:
        """Tokenize `data`."""
        return [token for token, _ in self.read(data)]

    def read(self, data: bytes) -> list[ReadToken]:
        """Tokenize `data`; return each token with the bytes that it was read from, which together are `data`.

        The tokenizer may change a word (a capital letter, an unknown character). Then the first resulting
        token gets all bytes, and the other tokens get none. Invalid UTF-8 (part of a character, for example)
        becomes the longest tokens that fit, and a stand-in for each byte without a token.
        """
        read: list[ReadToken] = []
        for part in _parts(data):
            read += self._read_text(part) if isinstance(part, str) else self._read_greedily(part)
        return read

    def first(self, data: bytes) -> int | None:
        """Return the first token of `data`, which must not be empty; None if no token begins it."""
        token, part = self.read(data)[0]
        return token if self.pieces[token] == part else self._longest(data)

    def _usual(self, piece: bytes) -> int | None:
        """Return the token that the tokenizer uses, of several with these bytes; None: it uses none."""
        try:
            tokens = self._tokenize(piece.decode())
        except UnicodeDecodeError:
            return None
        return tokens[0] if len(tokens) == 1 and self.pieces[tokens[0]] == piece else None

    def _read_text(self, text: str) -> list[ReadToken]:
        tokens, data = self._tokenize(text), text.encode()
        pieces = [self.pieces[token] for token in tokens]
        if b"".join(pieces) == data:
            return list(map(ReadToken, tokens, pieces))
        if not tokens:
            return self._read_greedily(data)
        words = _WORDS.findall(text)
        if len(words) == 1:
            return [ReadToken(tokens[0], data), *(ReadToken(token, b"") for token in tokens[1:])]
        half = len(words) // 2
        return [read for part in (words[:half], words[half:]) for read in self._read_text("".join(part))]

    def _read_greedily(self, data: bytes) -> list[ReadToken]:
        read, start = [], 0
        while start < len(data):
            token = self._longest(data[start : start + self._n_longest])
            part = data[start : start + 1] if token is None else self.pieces[token]
            read.append(ReadToken(self._stand_in if token is None else token, part))
            start += len(part)
        return read

    def _longest(self, data: bytes) -> int | None:
        """Return the longest token that `data` begins with."""
        ends = range(min(len(data), self._n_longest), 0, -1)
        return next((token for end in ends if (token := self.token_of(data[:end])) is not None), None)


def _parts(data: bytes) -> Iterator[str | bytes]:
    """Split `data`; yield text and bytes that are not valid UTF-8 alternately."""
    undecodable = b""
    while data:
        start, end = len(data), len(data)
        try:
            data.decode()
        except UnicodeDecodeError as error:
            start, end = error.start, error.end
        if start:
            if undecodable:
                yield undecodable
                undecodable = b""
            yield data[:start].decode()
        undecodable += data[start:end]
        data = data[end:]
    if undecodable:
        yield undecodable


def _successor(prefix: bytes) -> bytes:
    """Return the first string after all strings that begin with `prefix`; empty if there is none."""
    stem = prefix.rstrip(bytes([_MAX_BYTE]))
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b""
