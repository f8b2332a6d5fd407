"""A vocabulary as a set of byte strings, with a tokenizer that loses no byte."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from shared.errors import TranslationError

_MAX_BYTE = 0xFF


class ByteVocabulary:
    """The bytes of every token, and bytes → tokens."""

    def __init__(
        self, pieces: Sequence[bytes], tokenize: Callable[[str], Sequence[int]], preferred: Iterable[int] = ()
    ) -> None:
        """pieces: the bytes of each token; empty for tokens that stand for no text.

        tokenize: text → tokens, without any that the text does not contain (BOS, a leading blank).
        preferred: tokens that represent others with the same bytes.
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
        order = sorted(range(len(self.pieces)), key=self.pieces.__getitem__)
        self._sorted = [self.pieces[token] for token in order]
        self.ranks: NDArray[np.int32] = np.empty(len(order), np.int32)
        """The place of each token among all, in the order of their bytes."""
        self.ranks[order] = np.arange(len(order), dtype=np.int32)
        self._n_longest = max(map(len, self.pieces), default=0)

    def __len__(self) -> int:
        return len(self.pieces)

    def token_of(self, data: bytes) -> int | None:
        """The token with exactly these bytes; of several the preferred one, else that of the tokenizer."""
        return self._token_of.get(data)

    def continuing(self, prefix: bytes) -> tuple[int, int]:
        """The tokens that begin with `prefix` and go on, as a half-open range of `ranks`."""
        start = bisect_right(self._sorted, prefix)
        after = _successor(prefix)
        return start, bisect_left(self._sorted, after, start) if after else len(self._sorted)

    def has_longer(self, prefix: bytes) -> bool:
        """Whether a token begins with `prefix` and goes on."""
        start, end = self.continuing(prefix)
        return start < end

    def encode(self, data: bytes) -> list[int]:
        """The tokens of `data`, whose pieces are `data` again; raises TranslationError if there are none.

        Invalid UTF-8 (part of a character, say) becomes the longest tokens that fit.
        """
        tokens: list[int] = []
        for part in _parts(data):
            tokens += self._encode_text(part) if isinstance(part, str) else self._encode_greedily(part)
        return tokens

    def _usual(self, piece: bytes) -> int | None:
        """The token that texts are made of, among several with the same bytes."""
        try:
            tokens = self._tokenize(piece.decode())
        except UnicodeDecodeError:
            return None
        return tokens[0] if len(tokens) == 1 and self.pieces[tokens[0]] == piece else None

    def _encode_text(self, text: str) -> Sequence[int]:
        tokens = self._tokenize(text)
        data = text.encode()
        if b"".join(self.pieces[token] for token in tokens) == data:
            return tokens
        return self._encode_greedily(data)

    def _encode_greedily(self, data: bytes) -> list[int]:
        tokens = []
        start = 0
        while start < len(data):
            end = min(len(data), start + self._n_longest)
            while (token := self._token_of.get(data[start:end])) is None:
                end -= 1
                if end == start:
                    raise TranslationError(f"no token for the byte 0x{data[start]:02x}")
            tokens.append(token)
            start = end
        return tokens


def _parts(data: bytes) -> Iterator[str | bytes]:
    """Split `data` into text and bytes that are not valid UTF-8, in turns."""
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
    """The first string after all that begin with `prefix`; empty if there is none."""
    stem = prefix.rstrip(bytes([_MAX_BYTE]))
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b""
