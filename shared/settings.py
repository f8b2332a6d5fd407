"""The base of each program's settings: command line over environment over default.

A program has one settings class; each field is written once and becomes an option (`--n-gpu-layers`),
an environment variable (`LEAD_N_GPU_LAYERS`) and a line of `--help`.
"""

import inspect
import sys
from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import AfterValidator, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, CliSettingsSource, SettingsConfigDict, SettingsError

from shared.cpus import parse_cpus
from shared.errors import ConfigError


def _check_cpus(value: str) -> str:
    try:
        parse_cpus(value)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return value


CpuList = Annotated[str, AfterValidator(_check_cpus)]
"""Cores, as in 0-7,16; `shared.cpus.parse_cpus` reads it."""


class ProgramSettings(BaseSettings):
    """Subclass per program with `model_config = program_config("lead")`; the docstring heads `--help`."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        """Take the source code's indentation out of what `--help` shows."""
        cls.__doc__ = inspect.cleandoc(cls.__doc__ or "")

    @classmethod
    def from_command_line(cls, arguments: Sequence[str] | None = None) -> Self:
        """Parse `arguments` (default: the process's own) and the environment.

        Prints one line per wrong setting and exits with status 2, as argparse does.
        """
        try:
            source: CliSettingsSource[object] = CliSettingsSource(
                cls, cli_parse_args=list(sys.argv[1:] if arguments is None else arguments)
            )
            return cls(_cli_settings_source=source)
        except (ValidationError, SettingsError) as error:
            program = cls.model_config.get("cli_prog_name")
            for line in _explain(error):
                sys.stderr.write(f"{program}: {line}\n")
            sys.exit(2)


def program_config(program: str, shortcuts: dict[str, str | list[str]] | None = None) -> SettingsConfigDict:
    """Kebab-case options, `PROGRAM_*` variables, plain flags for booleans.

    `shortcuts` gives options further names (`{"ctx-size": "c"}`: -c).
    """
    return SettingsConfigDict(
        env_prefix=f"{program.upper()}_",
        env_ignore_empty=True,  # compose files pass on variables that are not set as empty ones
        cli_prog_name=program,
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        cli_parse_none_str="unset",  # what --help shows for a setting without a default
        cli_shortcuts=shortcuts,
        frozen=True,
        extra="forbid",
    )


def _explain(error: ValidationError | SettingsError) -> list[str]:
    if isinstance(error, SettingsError):
        return [str(error)]
    return [_explain_item(item) for item in error.errors()]


def _explain_item(item: ErrorDetails) -> str:
    option = "-".join(str(part) for part in item["loc"]).replace("_", "-")
    # A key that is mistyped is still a secret, and what is missing has no value.
    silent = "key" in option or item["type"] == "missing"
    got = "" if silent else f" (got {item['input']!r})"
    return f"--{option}: {item['msg'].removeprefix('Value error, ')}{got}"
