"""A program's command line: spellings of options, headings of `--help`, refused options.

It does not know the settings: `shared.settings.sources` adds the options and reads the values.
"""

import argparse
import ast
import difflib
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
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
    "tuple[JSON,...]": "FILE",
    "tuple[Path,...]": "FILE",
    "tuple[float,...]": "N,N",
    "tuple[str,...]": "TEXT,TEXT",
}


_DEFAULTS = {
    " (default: unset)": "",
    "(default: True)": "(default: enabled)",
    "(default: False)": "(default: disabled)",
}
"""Defaults as pydantic-settings writes them, and as `--help` shows them."""
_DEFAULT_LIST = re.compile(r" \(default: ([(\[].*[)\]])\)$", re.DOTALL)
"""A default of several values, as pydantic-settings writes it."""
_BARE = {"exact": "on", "flash_attn": "on"}
"""Options that may be given without a value, and the value that they then have."""
_SHOWN = {"as_json": "--json"}
"""The spelling in the short help if it is not the setting's name: a setting cannot be named `json`, because
pydantic has such a method.
"""
_ARGUMENTS, _GENERAL = "arguments", "general"
"""The headings of arguments and options without a heading of their own."""
_METAVAR_COLUMNS = 12
"""Longer lists of words are not shown beside an option in the short help."""
_OPTION_COLUMNS = 30
"""The width of options in the short help, with the gap after them."""
_DOCTOR = "doctor"
"""A subcommand, which must be the first word."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """Another program's spelling of one of our options.

    options: spellings that take a value, as our option does. constants: spellings without a value, and the
    value that each sets. variables: environment variables. default: the other program's default, if it
    differs from ours.
    """

    options: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    constants: Mapping[str, object] = field(default_factory=dict)
    default: object = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """Another program's command line, as far as we support it.

    spellings: the spellings of each of our options; spellings of options that a program lacks are ignored.
    ignored: options without effect here, with the number of their values. refused: options that are errors,
    with the reason. essential: refused options whose effect is required, so that nothing is run without it.
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
        *,
        usual: Mapping[str, str] | None = None,
    ) -> None:
        """headings: the heading of each option in help. Headings are shown in this order, after options
        without a heading.

        usual: the settings that --help shows, each with a text of one line, or with an empty text to show its
        whole help; None: all of them. The others are shown by --help TOPIC and --help-all.
        """
        self._constants: dict[str, tuple[str, ...]] = {}
        super().__init__(
            prog=program,
            usage=f"{program} [options]",
            description=description,
            formatter_class=partial(_Formatter, constants=self._constants),
            allow_abbrev=False,
            add_help=False,
        )
        self._usual = usual
        self._add_help()
        self.add_argument(
            "--version", action=_ShowVersion, nargs=0, const=version, help="show the version and exit"
        )
        self._dialect = dialect
        self._settings: dict[str, list[str]] = {}
        titles = {heading: self.add_argument_group(heading) for heading in dict.fromkeys(headings.values())}
        self._titles = headings
        self._headings = {setting: titles[heading] for setting, heading in headings.items()}
        self._sections: dict[str, list[argparse.Action]] = {
            title: [] for title in (_ARGUMENTS, _GENERAL, *titles)
        }
        """The settings by heading."""

    def add_setting(self, *names: str, **arguments: Any) -> None:
        """Like `add_argument`, with the spellings of the dialect in addition to `names`."""
        separator = ";" if ";" in _metavar(arguments.get("metavar", "")) else ", "
        arguments["help"] = _plain_default(arguments["help"], separator)
        if not names[0].startswith("-"):
            more = " ..." if arguments.get("nargs") in {"*", "+"} else ""
            self.usage = f"{self.usage} [{arguments['metavar']}{more}]"
            self._sections[_ARGUMENTS].append(self.add_argument(*names, **arguments))
            return
        setting = arguments["dest"]
        spelling = self._dialect.spellings.get(setting, Spelling())
        if "metavar" in arguments:
            arguments["metavar"] = _metavar(arguments["metavar"])
        if setting in _BARE:
            arguments |= {"nargs": "?", "const": _BARE[setting]}
        group = self._headings.get(setting, self)
        section = self._sections[self._titles.get(setting, _GENERAL)]
        options = dict.fromkeys((*names, *spelling.options))
        action = group.add_argument(*sorted(options, key=_shortness), **arguments)
        section.append(action)
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

    def _add_help(self) -> None:
        if self._usual is None:
            self.add_argument("-h", "--help", action=_ShowHelpAll, nargs=0, help="show this help and exit")
            return
        self.add_argument(
            "-h",
            "--help",
            action=_ShowHelp,
            nargs="?",
            metavar="TOPIC",
            help="show the usual options, or the options of a topic, and exit",
        )
        self.add_argument("--help-all", action=_ShowHelpAll, nargs=0, help="show all options and exit")

    def short_help(self) -> str:
        """Return usage, description and the usual options, each in a line or two."""
        usual = self._usual or {}
        actions = {each.dest: each for section in self._sections.values() for each in section}
        shown = [self._usual_action(actions[name]) for name in usual if name in actions]
        formatter = _Formatter(self.prog, {}, max_help_position=_OPTION_COLUMNS)
        formatter.add_usage(self.usage, (), ())
        formatter.add_text(self.description)
        _add_section(formatter, "usual options", shown)
        topics = dict.fromkeys(re.findall(r"\w+", title)[0] for title in self._topics())
        formatter.add_text(
            f"{self.prog} --help-all shows all options. {self.prog} --help TOPIC shows the options "
            "of a "
            f"topic:\n{textwrap.fill(', '.join(topics), initial_indent='  ', subsequent_indent='  ')}"
        )
        return formatter.format_help()

    def help_on(self, topic: str) -> str:
        """Return the options under the headings that contain `topic`; exits with status 2 if there
        are none.
        """
        topics = self._topics()
        found = {title: actions for title, actions in topics.items() if topic.casefold() in title.casefold()}
        if not found:
            self.error(f"unknown help topic {topic!r}. Topics: {'; '.join(topics)}")
        formatter = _Formatter(self.prog, self._constants)
        for title, actions in found.items():
            _add_section(formatter, title, actions)
        return formatter.format_help()

    def _topics(self) -> dict[str, list[argparse.Action]]:
        """Return the options by heading, without empty headings."""
        return {title: actions for title, actions in self._sections.items() if actions}

    def _usual_action(self, action: argparse.Action) -> argparse.Action:
        """Return the action with its short text, one short spelling and one long spelling."""
        shown = copy(action)
        shown.help = (self._usual or {}).get(action.dest) or action.help
        own = _SHOWN.get(action.dest, f"--{action.dest.replace('_', '-')}")
        short = [name for name in action.option_strings if not name.startswith("--")][:1]
        if action.option_strings:
            names = action.option_strings
            if action.nargs != 0 and len(str(action.metavar)) > _METAVAR_COLUMNS:
                shown.metavar = "WORD"
            shown.option_strings = [*short, own if own in names else names[-1]]
        return shown

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

    def is_argument(self, setting: str) -> bool:
        """Return whether the setting is a positional argument, not an option."""
        return any(action.dest == setting for action in self._sections[_ARGUMENTS])

    def given_as(self, setting: str, arguments: Sequence[str]) -> str | None:
        """Return the spelling under which the option `setting` occurs in `arguments`; None if it does not."""
        options = self._settings.get(setting, [])
        typed = (argument.partition("=")[0] for argument in arguments)
        return next((name for name in typed if name in options), None)

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with status 2."""
        show_all = "--help" if self._usual is None else "--help-all"
        whole = f"{message} ({self.prog} {show_all} lists all options)"
        sys.stderr.write(f"{self.prog}: {sanitize(whole)}\n")
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
            return f"{_DOCTOR} must be the first word: {self.prog} {_DOCTOR} [options]"
        if may_be_secret:
            return "unexpected value without an option"
        return f"{words[0]!r} is not an option. To load a model: {self.prog} --model {words[0]}"


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str, constants: Mapping[str, Sequence[str]], **layout: int) -> None:
        """`constants`: by option, the spellings that set it to one of its values. layout: the parameters of
        argparse's formatter.
        """
        super().__init__(prog, **layout)
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


def _add_section(formatter: argparse.HelpFormatter, title: str, actions: Iterable[argparse.Action]) -> None:
    formatter.start_section(title)
    formatter.add_arguments(actions)
    formatter.end_section()


class _ShowHelp(argparse.Action):
    """Shows the usual options, or the options of a topic."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        del namespace, option_string
        assert isinstance(parser, OptionParser)
        print_text((parser.short_help() if values is None else parser.help_on(str(values))).rstrip())
        sys.exit(0)


class _ShowHelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Show all options."""
        print_text(parser.format_help().rstrip())
        sys.exit(0)


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


def _plain_default(text: str, separator: str) -> str:
    """Return the help of an option, with its default as people write it."""
    if found := _DEFAULT_LIST.search(text):
        values = ast.literal_eval(found[1])
        shown = separator.join(str(value).encode("unicode_escape").decode() for value in values)
        text = text[: found.start()] + (f" (default: {shown})" if shown else "")
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
