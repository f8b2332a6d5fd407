"""A program's command line: names of options, groups of `--help`, options that it lacks.

Knows nothing of settings: `shared.settings.base` puts one option per setting here and reads what was given.
"""

import argparse
import difflib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

_METAVARS = {
    "Path": "FILE",
    "int": "N",
    "float": "N",
    "str": "TEXT",
    "SecretStr": "KEY",
    "list[SecretStr]": "KEY",
    "tuple[float,...]": "N,N",
    "tuple[str,...]": "TEXT,TEXT",
}


_DOCTOR = "doctor"
"""What a program may be asked to do instead of running; only as the first word."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """How another program spells a setting.

    Each of `options` takes its value as the setting's own option does; those of `constants` stand for the
    value beside them. `variables` are of the environment. `default`: if it has another one than ours.
    """

    options: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    constants: Mapping[str, object] = field(default_factory=dict)
    default: object = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """Another program's command line, as far as it is understood.

    `spellings` are by setting; those of settings that a program lacks count for nothing. `granted` are
    options that ask for what is so anyway, with the number of values behind each. `refused` options end the
    program with a reason.
    """

    spellings: Mapping[str, Spelling] = field(default_factory=dict)
    granted: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


class OptionParser(argparse.ArgumentParser):
    """argparse with errors of one line, which repeat no values that may be secrets."""

    def __init__(
        self, program: str, description: str, version: str, groups: Mapping[str, str], dialect: Dialect
    ) -> None:
        """`groups` gives settings a heading in `--help`; they are shown in its order, those without first."""
        self._constants: dict[str, tuple[str, ...]] = {}
        super().__init__(
            prog=program,
            usage=f"{program} [options]",
            description=description,
            formatter_class=partial(_Formatter, constants=self._constants),
            allow_abbrev=False,
        )
        self.add_argument("--version", action="version", version=version, help="show the version and exit")
        self._dialect = dialect
        self._settings: dict[str, list[str]] = {}
        titles = {heading: self.add_argument_group(heading) for heading in dict.fromkeys(groups.values())}
        self._groups = {setting: titles[heading] for setting, heading in groups.items()}

    def add_setting(self, *names: str, **arguments: Any) -> None:
        """As `add_argument`, with the dialect's spellings beside `names`."""
        if not names[0].startswith("-"):
            self.usage = f"{self.usage} {arguments['metavar']}"
            self.add_argument(*names, **arguments)
            return
        setting = arguments["dest"]
        spelling = self._dialect.spellings.get(setting, Spelling())
        if "metavar" in arguments:
            arguments["metavar"] = _metavar(arguments["metavar"])
        group = self._groups.get(setting, self)
        options = dict.fromkeys((*names, *spelling.options))
        action = group.add_argument(*sorted(options, key=_shortness), **arguments)
        self._settings[setting] = list(action.option_strings)
        self._constants[setting] = tuple(spelling.constants)
        for option, value in spelling.constants.items():
            self._settings[setting].append(option)
            self.add_argument(
                option,
                action="store_const",
                const=value,
                dest=setting,
                default=argparse.SUPPRESS,
                help=argparse.SUPPRESS,
            )

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """What was given; ends the program with status 2 if that cannot be understood."""
        for option, n_values in self._dialect.granted.items():
            self._add_hidden(option, _Granted, nargs=n_values)
        for option, reason in self._dialect.refused.items():
            self._add_hidden(option, _Refused, nargs="?", const=reason)
        namespace, rest = self.parse_known_args(arguments)
        if rest:
            self.error(self._explain_unknown(rest, arguments))
        return namespace

    def given_as(self, setting: str, arguments: Sequence[str]) -> str | None:
        """The option that gives `setting` in `arguments`, as it is spelled there."""
        options = self._settings.get(setting, [])
        typed = (argument.partition("=")[0] for argument in arguments)
        return next((name for name in typed if name in options), None)

    def error(self, message: str) -> NoReturn:
        """One line, and status 2."""
        sys.stderr.write(f"{self.prog}: {message} ({self.prog} --help lists all options)\n")
        sys.exit(2)

    def _add_hidden(self, option: str, action: type[argparse.Action], **arguments: Any) -> None:
        if option not in self._option_string_actions:  # a program may have what another lacks
            self.add_argument(
                option,
                action=action,
                dest=argparse.SUPPRESS,
                default=argparse.SUPPRESS,
                help=argparse.SUPPRESS,
                **arguments,
            )

    def _explain_unknown(self, rest: Sequence[str], arguments: Sequence[str]) -> str:
        options = [argument.partition("=")[0] for argument in rest if argument.startswith("-")]
        if not options:
            return self._explain_stray(rest, may_be_secret=any(map(_names_secret, arguments)))
        known = [name for names in self._settings.values() for name in names]
        similar = difflib.get_close_matches(options[0], known, 1)
        hint = f": did you mean {similar[0]}?" if similar else ""
        return f"there is no option {options[0]}{hint}"

    def _explain_stray(self, words: Sequence[str], *, may_be_secret: bool) -> str:
        if _DOCTOR in words:
            return f"{_DOCTOR} comes first: {self.prog} {_DOCTOR} [options]"
        word = "a value" if may_be_secret else repr(words[0])
        return f"{word} stands behind no option: a model, for instance, is named with --model FILE"


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str, constants: Mapping[str, Sequence[str]]) -> None:
        """`constants` are options by the setting for a value of which they stand."""
        super().__init__(prog)
        self._constants = constants

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """The value's name once behind all spellings, as Python 3.13 has it; then those that take none."""
        return ", ".join([self._format_own(action), *self._constants.get(action.dest, ())])

    def _format_own(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class _Granted(argparse.Action):
    """Is so without being asked for."""

    def __call__(self, *_: object) -> None:
        """Do nothing."""


class _Refused(argparse.Action):
    """`const` says why there is no such option."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        del namespace, values
        parser.error(f"{option_string}: {self.const}")


def _metavar(kind: str) -> str:
    """What stands for a value of `kind`, a type as pydantic-settings writes it."""
    return "NAME;NAME" if kind.startswith("tuple[{") else _METAVARS.get(kind, kind)


def _names_secret(argument: str) -> bool:
    """Whether a part of a secret may stand beside `argument`: one with a space in it that nobody quoted."""
    name = argument.partition("=")[0]
    return name.startswith("-") and ("key" in name or "token" in name)


def _shortness(option: str) -> tuple[bool, int]:
    """`-x` before `--xxx`, short before long."""
    return option.startswith("--"), len(option)
