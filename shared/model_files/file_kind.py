"""Recognizes parts of split GGUF files (by name), and models that generate no text (by their first metadata).

This takes no time, and gives reasons that llama.cpp would not give when it reads the file. If the beginning
of a file does not show the kind of its model, the model is left to `shared.llama.vocabulary`.
"""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, NoReturn

from shared.errors import ModelLoadError
from shared.model_files.gguf_header import first_values

BEGINNING_BYTES: Final = 1 << 16
"""The number of bytes read: `general.*` comes first, the vocabulary much later."""
RANK: Final = 4
"""llama.cpp's number for a head that scores how well two texts match."""
POOLING_TYPES: Final = frozenset({1, 2, 3, RANK})
"""llama.cpp's numbers for mean, CLS, last and rank. 0 means no pooling. Files that llama.cpp has saved have
-1.
"""

PROJECTOR: Final = "mmproj"
"""Part of the name of each projector's file."""
_NO_MODELS = (PROJECTOR, "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
"""Substrings in the names of GGUF files that are not models themselves."""
EAGLE = "eagle3"
"""The architecture of EAGLE-3 drafters."""
_TEXT_MODEL = "use a decoder-only text model"
_ADAPTER = "a LoRA adapter. Set --model to its base model and --lora to this file"
_PROJECTOR = (
    "the projector of a model that reads images or audio. Set --model to the model itself, a "
    "file without mmproj in its name"
)
_DRAFTER = (
    "a drafter that reads hidden states of its target. The lead can use EAGLE-3 and MTP drafters "
    "with --draft-model. For a back, use a small text model of the same family"
)
_SPEECH = f"a part of a speech synthesizer: {_TEXT_MODEL}"
_ENCODER = (
    f"an encoder, which turns text into vectors: {_TEXT_MODEL}. A lead can serve it with --model, "
    "--embedding-model or --rerank-model"
)
_TRANSLATOR = f"an encoder-decoder model: {_TEXT_MODEL}"
_DIFFUSION = f"a diffusion model, which does not generate from left to right: {_TEXT_MODEL}"
_STATISTICS = "an importance matrix or a control vector of a model. Set --model to the model itself"

_BY_TYPE = {"adapter": _ADAPTER, PROJECTOR: _PROJECTOR, "imatrix": _STATISTICS}
_BY_ARCHITECTURE = {
    "clip": _PROJECTOR,
    "controlvector": _STATISTICS,
    **dict.fromkeys((EAGLE, "dflash"), _DRAFTER),
    **dict.fromkeys(("wavtokenizer-dec", "qwen3tts", "pockettts"), _SPEECH),
    **dict.fromkeys(("t5encoder", "gemma-embedding", "llama-embed"), _ENCODER),
    "t5": _TRANSLATOR,
    **dict.fromkeys(("dream", "llada", "llada-moe", "rnd1"), _DIFFUSION),
}
_BY_ENDING = {**dict.fromkeys(("bert", "bert-v2", "bert-v3", "bert-moe"), _ENCODER), "-assistant": _DRAFTER}


def check_kind(path: Path) -> None:
    """Raise ModelLoadError if a GGUF file has no model that generates text, or its name is not
    valid UTF-8.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ModelLoadError(f"{str(path)!a} has a name that is not UTF-8. Rename the file") from None
    values = read_beginning(path)
    check_metadata(path, values.get("general.architecture", ""), values.get("general.type", ""))


def check_metadata(path: Path, architecture: str, kind: str) -> None:
    """Raise ModelLoadError if a file with these values of general.architecture and general.type has no model
    that generates text.
    """
    if reason := _reason(architecture, kind):
        raise _unusable(path, reason)


def _reason(architecture: str, kind: str) -> str | None:
    """Return why such a file is not a text model; None: it may be one."""
    return (
        _BY_TYPE.get(kind)
        or _BY_ARCHITECTURE.get(architecture)
        or next((reason for ending, reason in _BY_ENDING.items() if architecture.endswith(ending)), None)
    )


def is_eagle_file(path: Path) -> bool:
    """Return whether a file is an EAGLE-3 drafter, which `check_kind` refuses, as it is not a model by
    itself.
    """
    return read_beginning(path).get("general.architecture") == EAGLE


def refuse_drafter(path: Path) -> NoReturn:
    """Raise the ModelLoadError for a file that has only MTP layers."""
    raise _unusable(path, _DRAFTER)


def refuse_encoder(path: Path) -> NoReturn:
    """Raise the ModelLoadError for a model that computes embeddings according to its metadata."""
    raise _unusable(path, _ENCODER)


def _unusable(path: Path, reason: str) -> ModelLoadError:
    return ModelLoadError(f"{path} cannot be used: it is {reason}")


def pooling_of(path: Path) -> int | None:
    """Return the pooling type with which a GGUF file's model embeds a text, as a number of llama.cpp.

    None: the model does not embed texts. 0: the file does not specify the type. The result is meaningless for
    models that generate text, whose files may have 0 or -1.
    """
    values = values_of(path)
    architecture = str(values.get("general.architecture", ""))
    pooling = values.get(f"{architecture}.pooling_type")
    if pooling in POOLING_TYPES:
        return int(pooling)
    makes_vectors = _reason(architecture, str(values.get("general.type", ""))) == _ENCODER
    return 0 if makes_vectors or values.get(f"{architecture}.attention.causal") is False else None


def read_beginning(path: Path) -> dict[str, str]:
    """Return the strings among the first metadata of a GGUF file; empty for any other file."""
    return {name: value for name, value in values_of(path).items() if isinstance(value, str)}


def values_of(path: Path) -> dict[str, str | float]:
    """Return the first metadata of a GGUF file, including numbers; lists are left out."""
    try:
        if not path.is_file():  # a pipe would be waited for
            return {}
        with path.open("rb") as file:
            data = file.read(BEGINNING_BYTES)
        return first_values(data)
    except OSError:
        return {}


_PART = re.compile(r"(?P<prefix>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.DOTALL)
_SHOWN = 3
"""The number of missing parts that an error lists."""


@dataclass(frozen=True, slots=True)
class Part:
    """A parsed file name: part `number`, counted from 1, of `count`."""

    prefix: str
    number: int
    count: int

    def sibling(self, number: int) -> str:
        """Return the name of another part."""
        return f"{self.prefix}-{number:05d}-of-{self.count:05d}.gguf"

    def all(self) -> list[str]:
        """Return the names of all parts, in order."""
        return [self.sibling(number) for number in range(1, self.count + 1)]


def read_name(name: str) -> Part | None:
    """Parse a file's name: the part's number, and the number of all parts; None for a model in one file."""
    found = _PART.match(name)
    return found and Part(found["prefix"], int(found["number"]), int(found["count"]))


def is_model(name: str) -> bool:
    """Return whether a file of this name is a model, or the first part of a model."""
    path = PurePosixPath(name)
    part = read_name(name)
    first = part is None or part.number == 1
    return path.suffix == ".gguf" and first and not any(mark in path.name for mark in _NO_MODELS)


def parts_of(path: Path) -> list[Path]:
    """Return all files of the model at `path`, which may be its first part.

    Raises ModelLoadError if `path` is another part, as llama.cpp finds all parts by the first part, or if a
    part is missing.
    """
    part = read_name(path.name)
    if part is None:
        return [_existing(path)]
    if part.number != 1:
        raise ModelLoadError(
            f"{path} is part {part.number} of {part.count}. Use the first part: "
            f"{path.with_name(part.sibling(1))}"
        )
    missing = [name for name in part.all() if not path.with_name(name).is_file()]
    if missing and missing != part.all():
        raise ModelLoadError(
            f"{path} is the first of {part.count} parts, but its folder lacks {len(missing)} of them: "
            f"{', '.join(missing[:_SHOWN])}{' …' if len(missing) > _SHOWN else ''}"
        )
    _existing(path)
    return [path.with_name(name) for name in part.all()]


def size_of(path: Path) -> int:
    """Return the size of all parts in bytes; raises ModelLoadError, OSError."""
    return sum(part.stat().st_size for part in parts_of(path))


def _has_models(folder: Path) -> bool:
    try:
        return any(is_model(each.name) for each in folder.iterdir())
    except OSError:
        return False


def _existing(path: Path) -> Path:
    if path.is_dir():
        every = f". `lead --models-dir {path}` serves all models in it" if _has_models(path) else ""
        raise ModelLoadError(
            f"{path} is a folder. Choose a GGUF file in it, or a folder with GPT-2 (config.json){every}"
        )
    if not path.is_file():
        raise ModelLoadError(
            f"{path} {'is not a file' if path.exists() else 'does not exist'}. Check the path"
        )
    return path
