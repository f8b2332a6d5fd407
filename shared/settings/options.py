"""Options and groups of options, for a process that gets its settings from another process.

Reading the command line (`base`) also imports pydantic-settings and asyncio.
"""

from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from shared.cpus import parse_cpus
from shared.errors import ConfigError


class OptionError(ValueError):
    """The value of an option contradicts others; raised by validators that see several options."""

    def __init__(self, option: str, message: str) -> None:
        """`option` is a field's name, as in `back_cpus`."""
        super().__init__(message)
        self.option = option


def _check_cpus(value: str) -> str:
    try:
        parse_cpus(value)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return value


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _reading(words: dict[str, int]) -> BeforeValidator:
    return BeforeValidator(lambda value: words.get(str(value), value))


class AsWritten:
    """An annotation of an option whose validator gets the text as it was written, not decoded from JSON."""


CpuList = Annotated[str, AfterValidator(_check_cpus)]
"""CPU cores, as in 0-7,16; `shared.cpus.parse_cpus` reads it."""

CommaList = Annotated[tuple[str, ...], AsWritten, BeforeValidator(_split)]
"""Strings, separated by commas, given by repeating the option, or as a list in a file."""

PathList = Annotated[tuple[Path, ...], AsWritten, BeforeValidator(_split)]
"""Paths, given in the same way as a `CommaList`."""


AUTO_LAYERS: Final = -1
ALL_LAYERS: Final = -2
GpuLayers = Annotated[int, _reading({"auto": AUTO_LAYERS, "all": ALL_LAYERS})]
SlotCount = Annotated[int, _reading({"-1": 4})]
ThreadCount = Annotated[int, _reading({"-1": 0})]
"""Numbers for which llama-server also accepts words, or another number for "automatic"."""


class OptionGroup(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
