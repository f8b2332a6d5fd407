"""Sources of the values of options: the command line, the environment, a TOML file."""

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, get_args

from pydantic import create_model
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    EnvSettingsSource,
    NoDecode,
    SettingsConfigDict,
    SettingsError,
)

from shared.settings.command_line import Dialect, OptionParser
from shared.settings.options import AsWritten

_MISSPELLED = 0.75
"""The similarity (`difflib`) of a variable to an option's name above which it is probably misspelled."""


class OptionSources:
    """Values by option, as strings or TOML values; pydantic-settings reads all sources except the file."""

    def __init__(
        self,
        options: Mapping[str, FieldInfo],
        prefix: str,
        parser: OptionParser,
        dialect: Dialect,
        arguments: Sequence[str],
    ) -> None:
        """prefix: the beginning of the names of environment variables."""
        self.options = options
        self._prefix = prefix
        self._parser = parser
        self._dialect = dialect
        self._arguments = arguments
        self._path: Path | str | None = None
        self._file: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """Read the options given in any source; raises SettingsError, exits with status 2 as
        argparse does.
        """
        flat = _flat_settings(self.options, self._prefix)
        command_line = self._command_line(flat, list(self._arguments))
        given = {**dict(self._dialect_variables()), **EnvSettingsSource(flat)(), **command_line()}
        if path := given.get("config"):
            self._path, self._file = path, _read_file(path, self.options.keys() - {"config"})
        return self._file | given

    def parser(self) -> OptionParser:
        """Return a parser with all options, which has not parsed anything."""
        self._command_line(_flat_settings(self.options, self._prefix), None)
        return self._parser

    def _command_line(
        self, flat: type[BaseSettings], arguments: list[str] | None
    ) -> CliSettingsSource[object]:
        return CliSettingsSource(
            flat,
            root_parser=self._parser,
            cli_parse_args=arguments,
            add_argument_method=OptionParser.add_setting,
            parse_args_method=OptionParser.parse,
        )

    def origin(self, option: str) -> str:
        """Return the place where a person finds the value of `option`: its spelling, variable or file."""
        if spelled := self._parser.given_as(option, self._arguments):
            return spelled
        variables = [f"{self._prefix}{option.upper()}"]
        if spelling := self._dialect.spellings.get(option):
            variables += spelling.variables
        if variable := next((variable for variable in variables if os.environ.get(variable)), None):
            return variable
        key = option.replace("_", "-")
        if self._parser.is_argument(option):
            return key.upper()
        return f"{self._path}: {key}" if option in self._file else f"--{key}"

    def misspelled_variables(self) -> Iterator[str]:
        """Yield a warning for each variable with our prefix that is not an option."""
        known = {name.upper() for name in self.options}
        for variable in sorted(name for name, value in os.environ.items() if value):
            name = variable.upper().removeprefix(self._prefix)
            if name in known or not variable.upper().startswith(self._prefix):
                continue
            for meant in difflib.get_close_matches(name, known, 1, _MISSPELLED):
                yield f"{variable} is ignored: did you mean {self._prefix}{meant}?"

    def _dialect_variables(self) -> Iterator[tuple[str, str | bool]]:
        """Yield (option, value) of the environment variables of another program."""
        for option in self.options.keys() & self._dialect.spellings.keys():
            annotation = self.options[option].annotation
            is_switch = bool in {annotation, *get_args(annotation)}
            variables = self._dialect.spellings[option].variables
            # llama.cpp: the variable with NO, set to anything, even to nothing, switches off
            if is_switch and any(each.replace("_ARG_", "_ARG_NO_") in os.environ for each in variables):
                yield option, False
            elif value := next(filter(None, map(os.environ.get, variables)), None):
                words = {"enabled": "true", "disabled": "false"} if is_switch else {}
                yield option, words.get(value, value)


def _flat_settings(options: Mapping[str, FieldInfo], prefix: str) -> type[BaseSettings]:
    """Return a class for pydantic-settings whose fields are the options."""

    class Flat(BaseSettings):
        model_config = SettingsConfigDict(
            env_prefix=prefix,
            defer_build=True,  # only its fields are read; it validates nothing
            env_ignore_empty=True,  # compose files pass on variables that are not set as empty ones
            cli_kebab_case=True,
            cli_implicit_flags=True,
            cli_hide_none_type=True,
            cli_avoid_json=True,
            cli_parse_none_str="unset",  # shown by --help for an option without a default
        )

    fields: Any = {name: (field.annotation, _undecoded(field)) for name, field in options.items()}
    return create_model("Options", __base__=Flat, **fields)


def _undecoded(field: FieldInfo) -> FieldInfo:
    """Return a copy, which pydantic-settings does not decode if the option is `AsWritten`."""
    found = copy(field)
    found.metadata = [NoDecode if each is AsWritten else each for each in field.metadata]
    return found


def _read_file(path: Path | str, known: set[str]) -> dict[str, Any]:
    """Return the options in the file, by name; raises SettingsError."""
    try:
        content = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"--config: cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"--config: {path} is not valid TOML: {error}") from error
    values = {key.replace("-", "_"): value for key, value in content.items()}
    for key in values.keys() - known:
        raise SettingsError(f"{path}: {explain_unknown(key, known)}")
    return values


def explain_unknown(name: str, known: set[str]) -> str:
    """Return a sentence that says that there is no such option, with the closest known name."""
    similar = difflib.get_close_matches(name, known, 1)
    hint = f": did you mean {similar[0].replace('_', '-')}?" if similar else ""
    return f"unknown option {name.replace('_', '-')}{hint}"
