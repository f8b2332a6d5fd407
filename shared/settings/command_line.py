"""A program's command line: spellings of options, headings of `--help`, refused options.

Knows nothing of settings: `shared.settings.sources` adds the options and reads the values.
"""

import argparse
import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from shared.exits import print_text
from shared.terminal import sanitize

_METAVARS = {
    "Path": "FILE",
    "int": "N",
    "float": "N",
    "str": "TEXT",
    "SecretStr": "KEY",
    "list[SecretStr]": "KEY",
    "tuple[Path,...]": "FILE",
    "tuple[float,...]": "N,N",
    "tuple[str,...]": "TEXT,TEXT",
}


_DEFAULTS = {
    " (default: unset)": "",
    " (default: [])": "",
    " (default: ())": "",
    "(default: True)": "(default: enabled)",
    "(default: False)": "(default: disabled)",
}
"""Defaults as pydantic-settings writes them, and as `--help` shows them."""
_BARE = {"exact": "on"}
"""Options that may be given without a value, and the value that they then have."""
_DOCTOR = "doctor"
"""A subcommand, which must be the first word."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """Another program's spelling of one of our options.

    options: spellings with a value, as our option has. constants: spellings without a value, and the value
    that each sets. variables: environment variables. default: the other program's default, if it differs from
    ours.
    """

    options: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    constants: Mapping[str, object] = field(default_factory=dict)
    default: object = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """Another program's command line, as far as we support it.

    spellings: by our option; spellings of options that a program lacks are ignored. ignored: options without
    effect here, with the number of their values. refused: options that are errors, with the reason.
    essential: refused options whose effect is required, so that nothing is run without it.
    """

    spellings: Mapping[str, Spelling] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    essential: frozenset[str] = frozenset()


class OptionParser(argparse.ArgumentParser):
    """argparse with errors of one line, which contain no values that may be secrets."""

    def __init__(
        self,
        program: str,
        description: str,
        version: Callable[[], str],
        headings: Mapping[str, str],
        dialect: Dialect,
    ) -> None:
        """headings: options by heading in `--help`, shown in this order, after options without a heading."""
        self._constants: dict[str, tuple[str, ...]] = {}
        super().__init__(
            prog=program,
            usage=f"{program} [options]",
            description=description,
            formatter_class=partial(_Formatter, constants=self._constants),
            allow_abbrev=False,
        )
        self.add_argument(
            "--version", action=_ShowVersion, nargs=0, const=version, help="show the version and exit"
        )
        self._dialect = dialect
        self._settings: dict[str, list[str]] = {}
        titles = {heading: self.add_argument_group(heading) for heading in dict.fromkeys(headings.values())}
        self._headings = {setting: titles[heading] for setting, heading in headings.items()}

    def add_setting(self, *names: str, **arguments: Any) -> None:
        """Add an option as `add_argument` does, with the dialect's spellings in addition to `names`."""
        arguments["help"] = _plain_default(arguments["help"])
        if not names[0].startswith("-"):
            more = " ..." if arguments.get("nargs") in {"*", "+"} else ""
            self.usage = f"{self.usage} [{arguments['metavar']}{more}]"
            self.add_argument(*names, **arguments)
            return
        setting = arguments["dest"]
        spelling = self._dialect.spellings.get(setting, Spelling())
        if "metavar" in arguments:
            arguments["metavar"] = _metavar(arguments["metavar"])
        if setting in _BARE:
            arguments |= {"nargs": "?", "const": _BARE[setting]}
        group = self._headings.get(setting, self)
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
        """Parse the command line; exits with status 2 if it is invalid."""
        for option, n_values in self._dialect.ignored.items():
            self._add_hidden(option, _IgnoreOption, nargs=n_values)
        for option, reason in self._dialect.refused.items():
            self._add_hidden(option, _RefuseOption, nargs="?", const=reason)
        namespace, rest = self.parse_known_args(arguments)
        if rest:
            self.error(self._explain_unknown(rest, arguments))
        return namespace

    def given_as(self, setting: str, arguments: Sequence[str]) -> str | None:
        """Return the spelling under which the option `setting` occurs in `arguments`; None if it does not."""
        options = self._settings.get(setting, [])
        typed = (argument.partition("=")[0] for argument in arguments)
        return next((name for name in typed if name in options), None)

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with status 2."""
        sys.stderr.write(f"{self.prog}: {sanitize(message)} ({self.prog} --help lists all options)\n")
        sys.exit(2)

    def _add_hidden(self, option: str, action: type[argparse.Action], **arguments: Any) -> None:
        # A program may have an option that another ignores or refuses.
        if option not in self._option_string_actions:
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
        return f"unknown option {options[0]}{hint}"

    def _explain_stray(self, words: Sequence[str], *, may_be_secret: bool) -> str:
        if _DOCTOR in words:
            return f"{_DOCTOR} must come first: {self.prog} {_DOCTOR} [options]"
        word = "a value" if may_be_secret else repr(words[0])
        return f"{word} does not belong to an option: to load a model, for instance, use --model FILE"


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str, constants: Mapping[str, Sequence[str]]) -> None:
        """`constants`: by option, the spellings that set it to one of its values."""
        super().__init__(prog)
        self._constants = constants

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Return all spellings and then the value's name, as in Python 3.13; then the spellings without a
        value.
        """
        return ", ".join([self._format_own(action), *self._constants.get(action.dest, ())])

    def _format_own(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class _ShowVersion(argparse.Action):
    """Prints the version, which `const` returns, perhaps after a while; then exits."""

    def __call__(self, *_: object) -> None:
        print_text(self.const())
        sys.exit(0)


class _IgnoreOption(argparse.Action):
    def __call__(self, *_: object) -> None:
        """Do nothing."""


class _RefuseOption(argparse.Action):
    """An option that is an error; `const` is the reason."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        del namespace, values
        parser.error(f"{option_string}: {self.const}")


def _plain_default(text: str) -> str:
    """Return the help of an option, with its default as people write it."""
    for written, plain in _DEFAULTS.items():
        text = text.removesuffix(written) + (plain if text.endswith(written) else "")
    return text


def _metavar(kind: str) -> str:
    """Return the placeholder for a value of type `kind`, as pydantic-settings writes types."""
    return "NAME;NAME" if kind.startswith("tuple[{") else _METAVARS.get(kind, kind)


def _names_secret(argument: str) -> bool:
    """Return whether the argument names a secret, so that the next word may be part of it.

    A secret with a space that was not quoted has several words.
    """
    name = argument.partition("=")[0]
    return name.startswith("-") and ("key" in name or "token" in name)


def _shortness(option: str) -> tuple[bool, int]:
    """Return a sort key that puts `-x` before `--xxx`, and short names before long ones."""
    return option.startswith("--"), len(option)
