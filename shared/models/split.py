"""GGUF models in several files, named as llama.cpp names them: model-00001-of-00003.gguf."""

import re
from dataclasses import dataclass
from pathlib import Path

from shared.errors import ModelLoadError

_PART = re.compile(r"(?P<prefix>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.DOTALL)
_SHOWN = 3
"""The number of missing parts that an error lists."""


@dataclass(frozen=True, slots=True)
class Part:
    """The meaning of a name: part `number`, counted from 1, of `count`."""

    prefix: str
    number: int
    count: int

    def sibling(self, number: int) -> str:
        """The name of another part."""
        return f"{self.prefix}-{number:05d}-of-{self.count:05d}.gguf"

    def all(self) -> list[str]:
        """The names of all parts, in order."""
        return [self.sibling(number) for number in range(1, self.count + 1)]


def read_name(name: str) -> Part | None:
    """None for a model in one file."""
    found = _PART.match(name)
    return found and Part(found["prefix"], int(found["number"]), int(found["count"]))


def parts_of(path: Path) -> list[Path]:
    """All files of the model that `path` is, or is the first part of.

    Raises ModelLoadError if it is another part, or one is missing: llama.cpp finds the others by the first.
    """
    part = read_name(path.name)
    if part is None:
        return [_check(path)]
    if part.number != 1:
        raise ModelLoadError(
            f"{path} is part {part.number} of {part.count}: name the first, {path.with_name(part.sibling(1))}"
        )
    missing = [name for name in part.all() if not path.with_name(name).is_file()]
    if missing and missing != part.all():
        raise ModelLoadError(
            f"{path} is the first of {part.count} parts, of which {len(missing)} are missing in its folder: "
            f"{', '.join(missing[:_SHOWN])}{' …' if len(missing) > _SHOWN else ''}"
        )
    _check(path)
    return [path.with_name(name) for name in part.all()]


def _check(path: Path) -> Path:
    if path.is_dir():
        raise ModelLoadError(
            f"{path} is a folder: name a GGUF file in it, or a folder with GPT-2 (config.json)"
        )
    if not path.is_file():
        raise ModelLoadError(f"{path} is not there: check the path")
    return path
