"""A model's vocabulary: text ⇄ tokens, special tokens, chat template.

Needs no weights.
"""

import ctypes
import functools
import hashlib
import itertools
import logging
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from shared.errors import ModelLoadError
from shared.llama import library
from shared.llama.gguf_metadata import tensor_names
from shared.llama.model_info import ModelInfo
from shared.llama.native import llama_cpp
from shared.llama.special_tokens import SpecialToken, SpecialTokens
from shared.model_files.builtin import short_name
from shared.model_files.damaged_file import why_unusable
from shared.model_files.file_kind import (
    POOLING_TYPES,
    check_kind,
    check_metadata,
    parts_of,
    refuse_drafter,
    refuse_encoder,
)
from shared.protocol import VocabularyId

log = logging.getLogger("llama")

_NONE: "array[int]" = array("i")

_LOADING_ERROR = re.compile(r"error loading model[\w ]*: (.+)")
_UNKNOWN_ARCHITECTURE = re.compile(r"unknown model architecture: '(.*)'")
_N_BYTES = 256
_CONTROL = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN


class FimTokens(NamedTuple):
    """Tokens for fill-in-the-middle: before prefix, suffix and middle, before a repository name, and before a
    file.

    None: the model has no such token.
    """

    pre: int | None
    suf: int | None
    mid: int | None
    rep: int | None
    sep: int | None


class Vocabulary:
    """A vocabulary. Token ids are 0 ≤ id < n_tokens; every method raises ValueError for other ids."""

    def __init__(self, model: Any, path: Path) -> None:
        """model: a llama_model pointer that outlives this object (`load` makes an object that owns it)."""
        self._model = model
        self._vocab = llama_cpp.llama_model_get_vocab(model)
        self.info = _read_info(model, self._vocab, path)
        self.n_tokens = self.info.n_vocab
        # llama.cpp has a default BOS id, which is an ordinary token in a vocabulary without BOS.
        has_bos = metadata(model, "tokenizer.ggml.bos_token_id") is not None
        self.bos = _token_or_none(llama_cpp.llama_vocab_bos(self._vocab)) if has_bos else None
        self.eos = _token_or_none(llama_cpp.llama_vocab_eos(self._vocab))
        self.adds_bos = bool(llama_cpp.llama_vocab_get_add_bos(self._vocab))
        turn_end = _token_or_none(llama_cpp.llama_vocab_eot(self._vocab))
        self.turn_end = self.eos if turn_end is None else turn_end
        """The token that a chat template puts after every message, if the model has one."""
        self._pieces: dict[tuple[int, bool], bytes] = {}

    @property
    def native(self) -> Any:
        """The llama_vocab pointer, for other native objects; valid as long as this object exists."""
        return self._vocab

    @functools.cached_property
    def end_tokens(self) -> frozenset[int]:
        """The tokens that end an answer."""
        ends = map(llama_cpp.llama_vocab_is_eog, itertools.repeat(self._vocab), range(self.n_tokens))
        return frozenset(itertools.compress(range(self.n_tokens), ends))

    @functools.cached_property
    def fim(self) -> "FimTokens":
        """The tokens around a gap to fill (fill-in-the-middle)."""
        names = FimTokens._fields
        read = (getattr(llama_cpp, f"llama_vocab_fim_{name}") for name in names)
        return FimTokens(*(_token_or_none(each(self._vocab)) for each in read))

    def is_end(self, token: int) -> bool:
        """Return whether a token ends an answer, without computing `end_tokens`, which takes long."""
        return bool(llama_cpp.llama_vocab_is_eog(self._vocab, self.check(token)))

    @functools.cached_property
    def attributes(self) -> "array[int]":
        """The attributes of each token; computing takes a tenth of a second for a quarter of a million
        tokens.
        """
        tokens = range(self.n_tokens)
        return array("i", map(llama_cpp.llama_vocab_get_attr, itertools.repeat(self._vocab), tokens))

    def _with_attributes(self, mask: int) -> Iterator[int]:
        """Yield the tokens that have one of these attributes."""
        return (token for token, attributes in enumerate(self.attributes) if attributes & mask)

    @functools.cached_property
    def special_tokens(self) -> dict[str, int]:
        """The control tokens by their text. A grammar refers to a control token by its id, because the token
        stands for no text there.
        """
        special = (
            (self.piece(token, special=True).decode("utf-8", "replace"), token)
            for token in self._with_attributes(llama_cpp.LLAMA_TOKEN_ATTR_CONTROL)
        )
        return {text: token for text, token in special if text}

    @classmethod
    def load(cls, path: Path, *, writes_text: bool = True) -> Self:
        """Read the vocabulary of a GGUF file without its weights; raises ModelLoadError.

        writes_text: refuse a model that generates no text.
        """
        library.start()
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only = True
        return cls(load_native(path, parameters, writes_text=writes_text), path)

    @functools.cached_property
    def special_finder(self) -> SpecialTokens:
        """All tokens that are found in text before it is tokenized."""
        found = self._with_attributes(_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED)
        return SpecialTokens(self._special_token(token) for token in found)

    def _special_token(self, token: int) -> SpecialToken:
        attributes = self.attributes[token]
        text = llama_cpp.llama_vocab_get_text(self._vocab, token) or b""
        return SpecialToken(
            token,
            text.decode("utf-8", "surrogateescape"),
            control=bool(attributes & _CONTROL),
            strips_left=bool(attributes & llama_cpp.LLAMA_TOKEN_ATTR_LSTRIP),
            strips_right=bool(attributes & llama_cpp.LLAMA_TOKEN_ATTR_RSTRIP),
        )

    def template(self, name: str) -> str | None:
        """Return one of the model's own prompt templates, such as `rerank`; None: it has none of
        this name.
        """
        return _template(self._model, name.encode())

    def tokenize(
        self, text: str, *, add_special: bool, parse_special: bool, breaks: Sequence[int] = ()
    ) -> list[int]:
        """Return the result of `encode` as a list."""
        return self.encode(text, add_special=add_special, parse_special=parse_special, breaks=breaks).tolist()

    def encode(
        self, text: str, *, add_special: bool, parse_special: bool, breaks: Sequence[int] = ()
    ) -> "array[int]":
        """Return the tokens of `text`, as llama_tokenize returns them, except for a second BOS at the
        beginning.

        add_special: add the tokens that the model wants around a prompt. BOS is not added if the text begins
        with it, as the output of chat templates does. parse_special: read the text of a control token as that
        token. Do not set it for text of a client, which could end a turn. breaks: ascending positions that no
        control token may contain (see `SpecialTokens.split`).
        """
        before, after = self._around if add_special else (_NONE, _NONE)
        return self._encode(text, before, parse_special=parse_special, breaks=breaks) + after

    def encode_parts(
        self, text: str, given: Iterable[tuple[int, int, "array[int]"]], breaks: Sequence[int] = ()
    ) -> "list[array[int]]":
        """Return the tokens of a prompt in parts: before, in and after each range of `text` whose tokens are
        given.

        given: start, end and tokens, in order; the ranges begin and end at control tokens.
        """
        before, after = self._around
        parts, at = [], 0
        for start, end, tokens in (*given, (len(text), len(text), after)):
            inside = [each - at for each in breaks[bisect_right(breaks, at) : bisect_right(breaks, start)]]
            parts.append(self._encode(text[at:start], _NONE if at else before, breaks=inside))
            parts.append(tokens)
            at = end
        return parts

    def _encode(
        self, text: str, before: "array[int]", *, parse_special: bool = True, breaks: Sequence[int] = ()
    ) -> "array[int]":
        """Return `before` and the tokens of `text`; the text's BOS is omitted if `before` is the BOS."""
        text = text.encode("utf-8", "replace").decode()
        tokens = array("i", before)
        known: dict[str, array[int]] = {}
        for fragment in self.special_finder.split(text, control=parse_special, breaks=breaks):
            if isinstance(fragment, int):
                if fragment != self.bos or not before or tokens != before:
                    tokens.append(fragment)
            else:
                # For some models each call compiles a regular expression; turns begin and end alike.
                if fragment not in known:
                    known[fragment] = self._encode_plain(fragment, add_special=False)
                tokens += known[fragment]
        return tokens

    @functools.cached_property
    def _around(self) -> tuple["array[int]", "array[int]"]:
        """The tokens that `add_special` adds before and after a text."""
        both = self._encode_plain("", add_special=True)
        n_before = min(len(both), 1) if self.adds_bos else 0
        return both[:n_before], both[n_before:]

    def _encode_plain(self, text: str, *, add_special: bool) -> "array[int]":
        data = text.encode()
        n = len(data) + 8
        for _ in range(2):  # the second time with the room that llama.cpp asks for
            tokens = array("i", bytes(4 * abs(n)))
            buffer = (llama_cpp.llama_token * len(tokens)).from_buffer(tokens)
            n = llama_cpp.llama_tokenize(
                self._vocab, data, len(data), buffer, len(tokens), add_special, False
            )
            del buffer  # while it exists, the array cannot shrink
            if n >= 0:
                del tokens[n:]
                return tokens
        raise ValueError("the text could not be tokenized")

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """Return the bytes of one token; control tokens are empty unless `special`."""
        found = self._pieces.get((token, special))
        if found is None:
            found = self._pieces[token, special] = self._read_piece(self.check(token), special=special)
        return found

    def all_pieces(self) -> list[bytes]:
        """Return `piece` of every token, special ones included. Not cached."""
        vocab, read, buffer = self._vocab, llama_cpp.llama_token_to_piece, ctypes.create_string_buffer(64)
        pieces = []
        for token in range(self.n_tokens):
            n = read(vocab, token, buffer, len(buffer), 0, True)
            pieces.append(buffer.raw[:n] if n >= 0 else self._read_piece(token, special=True))
        return pieces

    @functools.cached_property
    def reads_any_text(self) -> bool:
        """True if llama.cpp can tokenize every text: with SentencePiece it aborts at a byte that has no
        token.
        """
        n_bytes = sum(1 for _ in self._with_attributes(llama_cpp.LLAMA_TOKEN_ATTR_BYTE))
        return self.info.vocab_type != llama_cpp.LLAMA_VOCAB_TYPE_SPM or n_bytes == _N_BYTES

    def is_unused(self, token: int) -> bool:
        """Return whether a token only fills up the vocabulary to a round size."""
        attributes = llama_cpp.llama_vocab_get_attr(self._vocab, self.check(token))
        return bool(attributes & llama_cpp.LLAMA_TOKEN_ATTR_UNUSED)

    @property
    def bos_text(self) -> str:
        """The text of the BOS token; empty if there is none."""
        return "" if self.bos is None else self.detokenize([self.bos])

    @property
    def eos_text(self) -> str:
        """The text of the EOS token; empty if there is none."""
        return "" if self.eos is None else self.detokenize([self.eos])

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of `tokens`, control tokens included."""
        return b"".join(self.piece(token, special=True) for token in tokens).decode("utf-8", "replace")

    def check(self, token: int) -> int:
        """Return `token`, or raise ValueError: native code aborts on ids out of range."""
        if not 0 <= token < self.n_tokens:
            raise ValueError(f"token {token} is not in the vocabulary of {self.n_tokens}")
        return token

    def identify(self) -> VocabularyId:
        """Return the vocabulary's id, which lead and back compare at `hello`."""
        return VocabularyId(fingerprint=self._fingerprint, n_tokens=self.n_tokens, model=self.info.name[:128])

    def _read_piece(self, token: int, *, special: bool) -> bytes:
        size = 64
        buffer = ctypes.create_string_buffer(size)
        n = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, size, 0, special)
        if n < 0:
            buffer = ctypes.create_string_buffer(-n)
            n = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, -n, 0, special)
        return buffer.raw[: max(n, 0)]

    @functools.cached_property
    def _fingerprint(self) -> str:
        """A digest of the texts of all tokens but the unused ones at the end.

        Models of one family pad the same vocabulary to different sizes (Qwen 2.5 72B and 0.5B, say).
        """
        n = self.n_tokens
        while n and self.is_unused(n - 1):
            n -= 1
        digest = hashlib.sha256(f"{self.info.vocab_type}:{n}".encode())
        for token in range(n):
            digest.update(b"\0" + (llama_cpp.llama_vocab_get_text(self._vocab, token) or b""))
        return digest.hexdigest()[:32]


def load_native(path: Path, parameters: Any, *, writes_text: bool = True) -> Any:
    """Return a llama_model pointer for a GGUF file; raises ModelLoadError. writes_text: as in
    `Vocabulary.load`.
    """
    parts = parts_of(path)
    if writes_text:
        check_kind(path)
    with library.explained_errors() as errors:
        model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
    if not model:
        raise ModelLoadError(_why_not_loaded(parts, errors))
    try:
        if writes_text:
            _check_usable(model, path, len(parts))
        _check_vocabulary(model, path)
    except ModelLoadError:
        llama_cpp.llama_model_free(model)
        raise
    return model


def _why_not_loaded(parts: Sequence[Path], errors: Sequence[str]) -> str:
    """Return the error for files that llama.cpp cannot load: what is wrong with them, or else llama.cpp's own
    message.
    """
    for part in parts:
        if reason := why_unusable(part):
            return f"{part} cannot be loaded: {reason}"
    said = next(filter(None, map(_LOADING_ERROR.search, errors)), None)
    if said and (unknown := _UNKNOWN_ARCHITECTURE.search(said[1])):
        return (
            f"{parts[0]} cannot be loaded: this llama.cpp does not support the architecture "
            f"{unknown[1]}. Try a newer llama-duo"
        )
    reason = said[1] if said else errors[0] if errors else "llama.cpp gives no reason"
    return (
        f"{parts[0]} cannot be loaded ({reason}). Download it again. If the model needs too much "
        "memory, use a smaller model or a smaller --n-gpu-layers. --log-level debug shows llama.cpp's log"
    )


def unusable(path: Path, reason: str) -> ModelLoadError:
    """Return the error for a kind of model that cannot be served."""
    return ModelLoadError(f"{path} cannot be used: {reason}. Use a decoder-only text model")


def _check_usable(model: Any, path: Path, n_parts: int) -> None:
    """Raise ModelLoadError if the model cannot continue a text token by token.

    `check_kind` refuses most such models before they are loaded; here all metadata is known.
    """
    architecture = metadata(model, "general.architecture") or ""
    check_metadata(path, architecture, metadata(model, "general.type") or "")
    if llama_cpp.llama_model_has_encoder(model):
        raise unusable(path, f"{architecture} models have an encoder")
    if llama_cpp.llama_model_is_diffusion(model):
        raise unusable(
            path, f"{architecture} is a diffusion model, which does not generate from left to right"
        )
    is_pooled = metadata(model, f"{architecture}.pooling_type") in {str(each) for each in POOLING_TYPES}
    if is_pooled or metadata(model, f"{architecture}.attention.causal") == "false":
        refuse_encoder(path)
    n_nextn, n_layers = (
        int(metadata(model, f"{architecture}.{key}") or 0) for key in ("nextn_predict_layers", "block_count")
    )
    if n_nextn and (n_nextn >= n_layers or (n_parts == 1 and _lacks_first_layer(path))):
        refuse_drafter(path)


def _check_vocabulary(model: Any, path: Path) -> None:
    if llama_cpp.llama_vocab_type(llama_cpp.llama_model_get_vocab(model)) == llama_cpp.LLAMA_VOCAB_TYPE_NONE:
        raise unusable(path, "it has no vocabulary")


def _lacks_first_layer(path: Path) -> bool:
    """Return whether a file has layers, but not the first: it only has parts after a model's last layer."""
    names = [name for name in tensor_names(path) if name.startswith("blk.")]
    return bool(names) and not any(name.startswith("blk.0.") for name in names)


def _token_or_none(token: int) -> int | None:
    return None if token < 0 else int(token)


def _read_info(model: Any, vocab: Any, path: Path) -> ModelInfo:
    architecture = metadata(model, "general.architecture") or "unknown"
    return ModelInfo(
        name=short_name(path) or metadata(model, "general.name") or path.stem,
        path=path,
        architecture=architecture,
        description=_description(model),
        n_vocab=llama_cpp.llama_vocab_n_tokens(vocab),
        vocab_type=llama_cpp.llama_vocab_type(vocab),
        # From the metadata: without weights llama.cpp leaves its own fields at 0.
        n_ctx_train=int(metadata(model, f"{architecture}.context_length") or 0),
        n_embd=int(metadata(model, f"{architecture}.embedding_length") or 0),
        n_params=llama_cpp.llama_model_n_params(model),
        size=llama_cpp.llama_model_size(model),
        chat_template=_template(model, None),
        tool_template=_template(model, b"tool_use"),
        file_type=int(file_type) if (file_type := metadata(model, "general.file_type")) else None,
    )


def _template(model: Any, name: bytes | None) -> str | None:
    template = llama_cpp.llama_model_chat_template(model, name)
    return template.decode("utf-8", "replace") if template else None


def metadata(model: Any, key: str) -> str | None:
    """Return a value in the metadata of a llama_model; None: it has none."""
    buffer = ctypes.create_string_buffer(1024)
    n = llama_cpp.llama_model_meta_val_str(model, key.encode(), buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace") if n >= 0 else None


def _description(model: Any) -> str:
    buffer = ctypes.create_string_buffer(256)
    llama_cpp.llama_model_desc(model, buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace")
