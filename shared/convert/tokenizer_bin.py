"""Reads llama2.c's tokenizer.bin: the pieces of a SentencePiece model, with their scores.

    int32   length of the longest piece
    then for each token: f32 score, int32 length, the piece in UTF-8

Blanks are stored as blanks (GGUF has ▁). The tokens for the beginning and end of a text are stored between
line breaks.
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path

from gguf import GGUFWriter, TokenType

from shared.convert.conversion import read_small
from shared.errors import ModelLoadError

_MAX_BYTES = 64 << 20
_LONGEST = struct.Struct("<i")
_ENTRY = struct.Struct("<fi")
_UNKNOWN, _BOS, _EOS = 0, 1, 2
_SPECIAL = {_UNKNOWN: "<unk>", _BOS: "<s>", _EOS: "</s>"}
_BYTES = frozenset(f"<0x{byte:02X}>" for byte in range(256))
_SPACE = "\u2581"


@dataclass(frozen=True, slots=True)
class TokenizerBin:
    """The pieces in GGUF's notation, and the score of each piece."""

    pieces: list[str]
    scores: list[float]

    def describe(self, writer: GGUFWriter) -> None:
        """Add the vocabulary to a GGUF file.

        llama2.c's models were trained on texts that begin with BOS and have no EOS: the next BOS ends a text
        (`run.c`, `generate`). Therefore both are end tokens.
        """
        writer.add_tokenizer_model("llama")
        writer.add_token_list(self.pieces)
        writer.add_token_scores(self.scores)
        writer.add_token_types([_token_type(token, piece) for token, piece in enumerate(self.pieces)])
        writer.add_unk_token_id(_UNKNOWN)
        writer.add_bos_token_id(_BOS)
        writer.add_eos_token_id(_EOS)
        writer.add_eot_token_id(_BOS)
        writer.add_add_bos_token(True)
        writer.add_add_space_prefix(True)


def read_tokenizer(path: Path, n_vocab: int) -> TokenizerBin:
    """Read a tokenizer of `n_vocab` tokens; raises ModelLoadError."""
    data = read_small(path, _MAX_BYTES)
    try:
        return _parse(data, n_vocab)
    except (struct.error, ValueError) as error:
        raise ModelLoadError(
            f"{path} is not the tokenizer.bin of a llama2.c checkpoint with {n_vocab} tokens: {error}"
        ) from error


def _parse(data: bytes, n_vocab: int) -> TokenizerBin:
    """Parse the file's content; raises ValueError or struct.error."""
    if len(data) < _LONGEST.size + n_vocab * _ENTRY.size:
        raise ValueError("it is too short")
    (longest,) = _LONGEST.unpack_from(data)
    at, pieces, scores = _LONGEST.size, [], []
    for token in range(n_vocab):
        score, length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        if not (0 <= length <= longest and at + length <= len(data) and math.isfinite(score)):
            raise ValueError(f"token {token} is damaged, or the file is cut off")
        pieces.append(_SPECIAL.get(token) or data[at : at + length].decode("utf-8").replace(" ", _SPACE))
        scores.append(score)
        at += length
    if at != len(data):
        raise ValueError(f"it has {len(data) - at} bytes after token {n_vocab - 1}")
    _check(pieces)
    return TokenizerBin(pieces, scores)


def _check(pieces: list[str]) -> None:
    """Raise ValueError for vocabularies at which llama.cpp aborts: tokens that occur twice, or
    missing bytes.
    """
    if missing := _BYTES.difference(pieces):
        raise ValueError(f"it lacks {len(missing)} of the 256 byte tokens, such as {min(missing)}")
    if len(set(pieces)) < len(pieces) or "" in pieces:
        raise ValueError("a token is empty or occurs twice")


def _token_type(token: int, piece: str) -> TokenType:
    if token == _UNKNOWN:
        return TokenType.UNKNOWN
    if token in _SPECIAL:
        return TokenType.CONTROL
    return TokenType.BYTE if piece in _BYTES else TokenType.NORMAL
