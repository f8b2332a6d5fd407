"""A program's settings as tables, from its settings class: one table for each group of `--help`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import CliPositionalArg, CliSuppress, CliToggleFlag

from docs.generate.blocks import table
from shared.settings.base import ProgramSettings
from shared.settings.command_line import Spelling

_HEADER = ["option", "variable", "default", "meaning"]
_GENERAL = "general"
(_SUPPRESSED,) = get_args(CliSuppress[int])[1:]
(_POSITIONAL,) = get_args(CliPositionalArg[int])[1:]
(_TOGGLE,) = get_args(CliToggleFlag[bool])[1:]


def settings_tables(program: type[ProgramSettings]) -> str:
    """Tables under headings of the third level, in the order of `--help`."""
    groups: dict[str, list[str]] = {_GENERAL: [], **{title: [] for title in program.headings.values()}}
    headings = program.headings_by_option()
    for name, field in program.options().items():
        if _SUPPRESSED not in field.metadata:
            groups[headings.get(name, _GENERAL)].append(name)
    sections = [
        f"### {program.program}: {title}\n\n" + table(_HEADER, [_row(program, name) for name in names])
        for title, names in groups.items()
        if names
    ]
    return "\n\n".join(sections)


def _row(program: type[ProgramSettings], name: str) -> list[str]:
    field = program.options()[name]
    spelling = program.dialect.spellings.get(name, Spelling())
    options = list(_options(name, field, spelling))
    variables = [f"{program.prefix}{name.upper()}", *spelling.variables]
    meaning = (field.description or "").replace("*", r"\*")
    return [_code(options), _code(variables), _default(field), meaning]


def _options(name: str, field: FieldInfo, spelling: Spelling) -> Iterator[str]:
    """The program's own spelling first."""
    option = name.replace("_", "-")
    if _POSITIONAL in field.metadata:
        yield option.upper()
        return
    can_be_negated = field.annotation is bool and _TOGGLE not in field.metadata
    for each in (f"--{option}", *spelling.options):
        yield each
        if can_be_negated and each.startswith("--"):
            yield f"--no-{each.removeprefix('--')}"
    yield from spelling.constants


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        raise ValueError(f"no default: {field.description}")
    return _shown(value)


def _shown(value: Any) -> str:
    """The value as it is written on a command line or in a file."""
    match value:
        case None | [] | () | "":
            return ""
        case bool():
            return "on" if value else "off"
        case float():
            return f"`{value:g}`"
        case int() | str() | Path():
            return f"`{value}`"
        case tuple():
            return _code([str(each).encode("unicode_escape").decode() for each in value])
        case _:
            raise TypeError(f"how is {value!r} written?")


def _code(words: list[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
