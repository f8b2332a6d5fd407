"""The base of each program's settings: command line over environment over file over default.

A program has one settings class; each field is written once and becomes an option (`--n-gpu-layers`),
an environment variable (`LEAD_N_GPU_LAYERS`), a key of a TOML file (`n-gpu-layers`) and a line of `--help`.
"""

import difflib
import importlib.metadata
import inspect
import os
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    CliToggleFlag,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from shared.cpus import parse_cpus
from shared.errors import ConfigError
from shared.settings.command_line import Dialect, OptionParser


def _check_cpus(value: str) -> str:
    try:
        parse_cpus(value)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return value


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


CpuList = Annotated[str, AfterValidator(_check_cpus)]
"""Cores, as in 0-7,16; `shared.cpus.parse_cpus` reads it."""

CommaList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
"""Several texts: commas between them, the option repeated, or a list in a file."""

_MISSPELLED = 0.75
"""How alike (`difflib`) a variable and a setting are of which one is meant for the other."""


class ProgramSettings(BaseSettings):
    """Subclass per program with `model_config = program_config("lead")`; the docstring heads `--help`.

    `groups` names the first setting of each group in `--help` and the group's heading, in the order in which
    they are shown; `dialect` is another program's spelling that is understood, too.
    """

    groups: ClassVar[dict[str, str]] = {}
    dialect: ClassVar[Dialect] = Dialect()

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        """Take the source code's indentation out of what `--help` shows."""
        cls.__doc__ = inspect.cleandoc(cls.__doc__ or "")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The order of precedence; pydantic puts the command line before all of them."""
        del dotenv_settings, file_secret_settings
        return (
            init_settings,
            env_settings,
            _DialectVariables(settings_cls, cls.dialect),
            _SettingsFile(settings_cls),
        )

    @classmethod
    def from_command_line(cls, arguments: Sequence[str] | None = None) -> Self:
        """Parse `arguments` (default: the process's own), the environment and the file that they name.

        Prints one line per wrong setting and exits with status 2, as argparse does. A variable that seems to
        be misspelled is only warned of: it may be for something else.
        """
        arguments = list(sys.argv[1:] if arguments is None else arguments)
        parser = cls._parser()
        cls._warn_of_misspellings(parser)
        try:
            source: CliSettingsSource[object] = CliSettingsSource(
                cls,
                root_parser=parser,
                cli_parse_args=arguments,
                add_argument_method=OptionParser.add_setting,
                parse_args_method=OptionParser.parse,
            )
            return cls(_cli_settings_source=source)
        except ValidationError as error:
            for item in error.errors():
                sys.stderr.write(f"{parser.prog}: {cls._explain(item, parser, arguments)}\n")
        except SettingsError as error:
            sys.stderr.write(f"{parser.prog}: {error}\n")
        sys.exit(2)

    @classmethod
    def _parser(cls) -> OptionParser:
        program = str(cls.model_config.get("cli_prog_name"))
        heading, groups = None, {}
        for name in cls.model_fields:
            heading = cls.groups.get(name, heading)
            if heading:
                groups[name] = heading
        order = list(cls.groups.values())
        groups = dict(sorted(groups.items(), key=lambda item: order.index(item[1])))
        version = f"llama-duo {importlib.metadata.version('llama-duo')}"
        return OptionParser(program, cls.__doc__ or "", version, groups, cls.dialect)

    @classmethod
    def _warn_of_misspellings(cls, parser: OptionParser) -> None:
        prefix = str(cls.model_config.get("env_prefix"))
        known = {name.upper() for name in cls.model_fields}
        for variable in sorted(name for name, value in os.environ.items() if value):
            name = variable.upper().removeprefix(prefix)
            if name in known or not variable.upper().startswith(prefix):
                continue
            for meant in difflib.get_close_matches(name, known, 1, _MISSPELLED):
                sys.stderr.write(f"{parser.prog}: {variable} is ignored: did you mean {prefix}{meant}?\n")

    @classmethod
    def _explain(cls, item: ErrorDetails, parser: OptionParser, arguments: Sequence[str]) -> str:
        message = item["msg"].removeprefix("Value error, ")
        if not item["loc"]:
            return message  # its input is all settings, secrets among them
        name = str(item["loc"][0])
        # A key that is mistyped is still a secret, and what is missing has no value.
        silent = _is_secret(name) or item["type"] == "missing"
        got = "" if silent else f" (got {item['input']!r})"
        return f"{cls._origin(name, parser, arguments)}: {message}{got}"

    @classmethod
    def _origin(cls, name: str, parser: OptionParser, arguments: Sequence[str]) -> str:
        """Where a person finds the value that is wrong."""
        if option := parser.given_as(name, arguments):
            return option
        variables = [f"{cls.model_config.get('env_prefix')}{name.upper()}"]
        if spelling := cls.dialect.spellings.get(name):
            variables += spelling.variables
        if variable := next((variable for variable in variables if os.environ.get(variable)), None):
            return variable
        file = getattr(
            parser.parse(arguments), "config", os.environ.get(f"{variables[0][: -len(name)]}CONFIG")
        )
        return f"{file}: {name.replace('_', '-')}" if file and name in _read_file(file) else _option(name)


class FileSettings(ProgramSettings):
    """Settings that may also stand in a file, and that a person may want to have checked."""

    check: CliToggleFlag[bool] = Field(
        False, description="say what would be run and whether this machine can (status 0 or 1), then end"
    )
    config: Path | None = Field(
        None,
        description="a TOML file of settings, as in ctx-size = 8192; options and variables go over it",
    )


def program_config(program: str) -> SettingsConfigDict:
    """Kebab-case options, `PROGRAM_*` variables, plain flags for booleans."""
    return SettingsConfigDict(
        env_prefix=f"{program.upper()}_",
        env_ignore_empty=True,  # compose files pass on variables that are not set as empty ones
        cli_prog_name=program,
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        cli_parse_none_str="unset",  # what --help shows for a setting without a default
        frozen=True,
        extra="forbid",
    )


class _DialectVariables(PydanticBaseSettingsSource):
    """Environment variables that another program has for the same settings."""

    def __init__(self, settings_cls: type[BaseSettings], dialect: Dialect) -> None:
        super().__init__(settings_cls)
        self._dialect = dialect

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        spelling = self._dialect.spellings.get(field_name)
        is_switch = bool in {field.annotation, *get_args(field.annotation)}
        for variable in spelling.variables if spelling else ():
            # llama.cpp: any value, even an empty one, of the variable with NO switches off what can be
            if is_switch and variable.replace("_ARG_", "_ARG_NO_") in os.environ:
                return False, field_name, False
            if value := os.environ.get(variable):
                words = {"enabled": "true", "disabled": "false"} if is_switch else {}
                return words.get(value, value), field_name, False
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        found = {
            name: self.prepare_field_value(name, field, self.get_field_value(field, name)[0], False)
            for name, field in self.settings_cls.model_fields.items()
        }
        return {name: value for name, value in found.items() if value is not None}


class _SettingsFile(PydanticBaseSettingsSource):
    """The TOML file that an earlier source names as `config`; raises SettingsError for one that is wrong."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        del field
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        path = self.current_state.get("config")
        if not path:
            return {}
        values = _read_file(path)
        known = self.settings_cls.model_fields.keys() - {"config"}
        if unknown := [key for key in values if key not in known]:
            raise SettingsError(f"{path}: {_explain_unknown(unknown[0], known)}")
        return values


def _read_file(path: Path | str) -> dict[str, Any]:
    """By the settings' names; raises SettingsError."""
    try:
        content = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"--config: {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"--config: {path} is not TOML: {error}") from error
    return {key.replace("-", "_"): value for key, value in content.items()}


def _explain_unknown(name: str, known: set[str]) -> str:
    similar = difflib.get_close_matches(name, known, 1)
    hint = f": did you mean {similar[0].replace('_', '-')}?" if similar else ""
    return f"there is no setting {name.replace('_', '-')}{hint}"


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _is_secret(name: str) -> bool:
    """A token is one, while max_tokens is a number."""
    return ("key" in name or name.endswith("token")) and not name.endswith("file")
