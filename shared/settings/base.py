"""The base of each program's settings. Command line overrides environment, file and default, in this order.

A settings class has options and groups of options (nested models) as fields. Users see no groups: each option
is spelled `--n-gpu-layers`, `LEAD_N_GPU_LAYERS` in the environment and `n-gpu-layers` in a TOML file.
"""

import inspect
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json, to_jsonable_python
from pydantic_settings import CliToggleFlag, SettingsError

from shared.settings.command_line import Dialect, OptionParser
from shared.settings.options import OptionError
from shared.settings.sources import OptionSources
from shared.settings.wrong_values import sentence
from shared.terminal import sanitize
from shared.version import VERSION


class ProgramSettings(BaseModel):
    """The settings of one program; the docstring of the subclass heads its `--help`.

    program: its name. prefix: the prefix of its environment variables. headings: the first option under each
    heading of help, with the heading, in the order of help. usual: the options that `--help` shows, each with
    a text of one line; empty: all. If only the base class has such a list, `--help` shows the options that
    the base class lacks. dialect: another program's spellings that are accepted, too. defaults: this
    program's defaults where they differ from the fields' defaults.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    program: ClassVar[str]
    prefix: ClassVar[str]
    headings: ClassVar[Mapping[str, str]] = {}
    usual: ClassVar[Mapping[str, str]] = {}
    dialect: ClassVar[Dialect] = Dialect()
    defaults: ClassVar[Mapping[str, object]] = {}

    @classmethod
    def options(cls) -> dict[str, FieldInfo]:
        """Return the field of each option by name, including options in groups."""
        found: dict[str, FieldInfo] = {}
        for name, field in cls.model_fields.items():
            found |= _group_fields(field) or {name: field}
        for name, default in cls.defaults.items():
            found[name] = copy(found[name])
            found[name].default = default
        return found

    @classmethod
    def from_options(cls, **values: Any) -> Self:
        """Make settings from values by option, in any groups; raises ValidationError."""
        nested: dict[str, Any] = {**cls.defaults, **values}
        for group, field in cls.model_fields.items():
            if fields := _group_fields(field):
                nested[group] = {name: nested.pop(name) for name in fields if name in nested}
        return cls.model_validate(nested)

    def given(self) -> dict[str, Any]:
        """Return the options that were given, by name, JSON-compatible; secrets are included."""
        found: dict[str, Any] = {}
        for name in self.model_fields_set:
            value = getattr(self, name)
            if _group_fields(type(self).model_fields[name]):
                found |= {each: getattr(value, each) for each in value.model_fields_set}
            else:
                found[name] = value
        return {name: _as_json(value) for name, value in found.items()}

    @classmethod
    def from_command_line(cls, arguments: Sequence[str] | None = None) -> Self:
        """Read `arguments` (default: the process's arguments), the environment and the file they name.

        Prints one line per invalid option and exits with status 2, as argparse does. A variable that seems
        misspelled only causes a warning, because it may belong to another program.
        """
        sources = cls.sources(sys.argv[1:] if arguments is None else arguments)
        for warning in sources.misspelled_variables():
            cls._complain(warning)
        try:
            settings = cls.from_options(**sources.read())
            undecoded = [name for name, value in settings.given().items() if not _is_text(value)]
            if not undecoded:
                return settings
            for name in undecoded:
                cls._complain(f"{sources.origin(name)}: the value is not UTF-8")
        except ValidationError as error:
            for message in explain_invalid(error, sources.options, sources.origin):
                cls._complain(message)
        except SettingsError as error:
            cls._complain(str(error))
        sys.exit(2)

    @classmethod
    def _complain(cls, message: str) -> None:
        """Write an error to stderr; the message may quote a file of settings, so it is sanitized."""
        sys.stderr.write(f"{cls.program}: {sanitize(message)}\n")

    @classmethod
    def headings_by_option(cls) -> dict[str, str]:
        """Return the heading of each option that has one, in the order of `--help`."""
        heading, found = None, {}
        for name in cls.options():
            heading = cls.headings.get(name, heading)
            if heading:
                found[name] = heading
        order = list(cls.headings.values())
        return dict(sorted(found.items(), key=lambda item: order.index(item[1])))

    @classmethod
    def sources(cls, arguments: Sequence[str] = ()) -> OptionSources:
        """Return the sources of options; their `parser()` knows all options."""
        description = inspect.cleandoc(cls.__doc__ or "")
        parser = OptionParser(
            cls.program,
            description,
            cls.version,
            cls.headings_by_option(),
            cls.dialect,
            usual=cls._shown_by_help(),
        )
        return OptionSources(cls.options(), cls.prefix, parser, cls.dialect, list(arguments))

    @classmethod
    def _shown_by_help(cls) -> Mapping[str, str] | None:
        """Return the options that `--help` shows, with their texts; None: all."""
        if not cls.usual:
            return None
        if "usual" in cls.__dict__:
            return cls.usual
        base = next(each for each in cls.__mro__ if "usual" in each.__dict__)
        assert issubclass(base, ProgramSettings)
        inherited = {(name, field.description) for name, field in base.options().items()}
        own = ((name, field.description) for name, field in cls.options().items())
        return {name: "" for name, description in own if (name, description) not in inherited}

    @classmethod
    def version(cls) -> str:
        return f"llama-duo {VERSION}"


class FileSettings(ProgramSettings):
    """The settings of a program with `--check`, which can also be read from a file."""

    check: CliToggleFlag[bool] = Field(
        False,
        description="check whether this machine can run the model with these options, then exit with "
        "status 0 or 1",
    )
    list_devices: CliToggleFlag[bool] = Field(
        False, description="list the devices for models and their memory, then exit"
    )
    config: Path | None = Field(
        None,
        description="TOML file with options, such as ctx-size = 8192. The command line and environment "
        "variables override it",
    )

    @classmethod
    def version(cls) -> str:
        """Return the version, with details for bug reports; takes half a second."""
        from shared.diagnostics.installation import installation  # noqa: PLC0415 - imports llama.cpp

        return "\n".join([super().version(), *installation()])


def _as_json(value: Any) -> Any:
    """Return a value for JSON, with secrets in plain text."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, list | tuple):
        return [_as_json(each) for each in value]
    return to_jsonable_python(value)


def _is_text(value: object) -> bool:
    """Return False for bytes from the system that Python cannot decode, and so cannot pass to a process."""
    try:
        to_json(value)
    except PydanticSerializationError:
        return False
    return True


def _group_fields(field: FieldInfo) -> dict[str, FieldInfo]:
    """Return the options of a group; empty for a field that is itself an option."""
    kind = field.annotation
    return dict(kind.model_fields) if isinstance(kind, type) and issubclass(kind, BaseModel) else {}


def explain_invalid(
    error: ValidationError, options: Container[str], origin: Callable[[str], str]
) -> Iterator[str]:
    """Yield a line for each invalid option, about its first fault, without values that may be secrets.

    origin: returns the place where a person finds the value of an option.
    """
    told: set[str] = set()
    for item in error.errors():
        name = next((str(part) for part in item["loc"] if part in options), "")
        if not name or name not in told:
            told.add(name)
            yield _explain(item, options, origin)


def _explain(item: ErrorDetails, options: Container[str], origin: Callable[[str], str]) -> str:
    message = sentence(item)
    error = item.get("ctx", {}).get("error")
    if isinstance(error, OptionError):
        return f"{origin(error.option)}: {message}"
    name = next((str(part) for part in item["loc"] if part in options), None)
    if name is None:
        return message  # the input is all options, secrets among them
    # A mistyped key is still a secret, and a missing option has no value.
    is_hidden = _is_secret(name) or item["type"] == "missing"
    got = "" if is_hidden else f" (got {item['input']!r})"
    return f"{origin(name)}: {message}{got}"


def _is_secret(name: str) -> bool:
    """Return whether an option of this name is a secret: a token is, max_tokens is not."""
    return ("key" in name or name.endswith("token")) and not name.endswith("file")
