"""GPT-2's vocabulary in Hugging Face's files: vocab.json (tokens in an alphabet for bytes) and merges.txt."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gguf import GGUFWriter, TokenType
from pydantic import Field, TypeAdapter, ValidationError

from shared.errors import ModelLoadError
from shared.models.convert.source_bytes import read_small

_MAX_BYTES = 16 << 20
_END = "<|endoftext|>"

_TOKENS: TypeAdapter[dict[str, int]] = TypeAdapter(dict[str, Annotated[int, Field(ge=0, strict=True)]])


def byte_alphabet() -> list[str]:
    """The character that stands for each byte (`bytes_to_unicode` of OpenAI's encoder.py).

    Printable bytes stand for themselves, the others for characters from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


@dataclass(frozen=True, slots=True)
class Gpt2Vocabulary:
    """tokens: by id; fewer than the model's, if that has unused ones at the end. end: of a text."""

    tokens: list[str]
    merges: list[str]
    end: int

    def describe(self, writer: GGUFWriter, n_vocab: int) -> None:
        """Add the vocabulary to a GGUF, with unused tokens up to `n_vocab`."""
        unused = [f"[PAD{token}]" for token in range(len(self.tokens), n_vocab)]
        types = [TokenType.NORMAL] * len(self.tokens) + [TokenType.UNUSED] * len(unused)
        types[self.end] = TokenType.CONTROL
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list([*self.tokens, *unused])
        writer.add_token_types(types)
        writer.add_token_merges(self.merges)
        writer.add_bos_token_id(self.end)
        writer.add_eos_token_id(self.end)
        writer.add_add_bos_token(False)


def read_vocabulary(folder: Path, n_vocab: int, end: int | None) -> Gpt2Vocabulary:
    """From a folder's vocab.json and merges.txt, for a model of `n_vocab` tokens; raises ModelLoadError.

    `end`: the id of the end token; None: <|endoftext|>.
    """
    path = folder / "vocab.json"
    try:
        ids = _TOKENS.validate_json(read_small(path, _MAX_BYTES))
    except ValidationError as error:
        raise ModelLoadError(f"{path} is not a vocabulary: {error.errors()[0]['msg']}") from error
    tokens = sorted(ids, key=ids.__getitem__)
    if [ids[token] for token in tokens] != list(range(len(tokens))) or "" in ids:
        raise ModelLoadError(f"{path} is not a vocabulary: its ids are not 0, 1, 2, … each once")
    if len(tokens) > n_vocab:
        raise ModelLoadError(f"{path} has {len(tokens)} tokens, and config.json says vocab_size {n_vocab}")
    if missing := set(byte_alphabet()) - ids.keys():
        raise ModelLoadError(
            f"{path} is not GPT-2's kind of vocabulary: it lacks {len(missing)} of 256 bytes"
        )
    end = ids.get(_END) if end is None else end
    if end is None or not 0 <= end < len(tokens):
        raise ModelLoadError(f"{path} has no end token: neither {_END} nor config.json's eos_token_id")
    return Gpt2Vocabulary(tokens, read_merges(folder / "merges.txt", ids), end)


def read_merges(path: Path, known: dict[str, int]) -> list[str]:
    """The merges of merges.txt, best first; raises ModelLoadError."""
    try:
        lines = read_small(path, _MAX_BYTES).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ModelLoadError(f"{path} is not in UTF-8") from error
    if lines[0].startswith("#version"):
        del lines[0]
    merges = [line.removesuffix("\r") for line in lines if line.strip()]
    for merge in merges:
        _check_merge(path, merge.split(" "), known)
    if len(set(merges)) < len(merges) or not merges:
        raise ModelLoadError(f"{path} has {'a merge twice' if merges else 'no merges'}")
    return merges


def _check_merge(path: Path, pair: Sequence[str], known: dict[str, int]) -> None:
    if len(pair) != 2 or not all(pair) or "".join(pair) not in known:  # noqa: PLR2004 - a pair
        raise ModelLoadError(f"{path} does not fit vocab.json: {' '.join(pair)[:100]!r} makes no token")
