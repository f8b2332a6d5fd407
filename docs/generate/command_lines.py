"""Shell completions and man pages, from the parsers that the programs use.

`python -m docs.generate.command_lines .venv/share` writes them; wheel_hook.py puts them into wheels.
"""

import argparse
import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args, get_origin

import shtab
from argparse_manpage.manpage import Manpage

from back.os_service.back_service import BackServiceSettings
from back.settings import BackSettings
from chat.settings import ChatSettings
from docs.generate.blocks import table
from lab.measuring.bench_settings import BenchSettings
from lab.planning.plan_settings import PlanSettings
from lead.convert.convert_program import ConvertSettings
from lead.disk_cache.cache_program import CacheSettings
from lead.generate.generate_settings import GenerateSettings
from lead.os_service.lead_service import LeadServiceSettings
from lead.os_service.uninstall_program import UninstallSettings
from lead.pairing.invite import InviteSettings
from lead.router.models_program import ModelsSettings
from lead.rpc.rpc_worker import RpcWorkerSettings
from lead.settings.lead_settings import LeadSettings
from shared.settings.base import ProgramSettings

PROGRAMS: Mapping[type[ProgramSettings], Mapping[str, type[ProgramSettings]]] = {
    LeadSettings: {
        "bench": BenchSettings,
        "cache": CacheSettings,
        "convert": ConvertSettings,
        "doctor": LeadSettings,
        "generate": GenerateSettings,
        "invite": InviteSettings,
        "models": ModelsSettings,
        "plan": PlanSettings,
        "rpc-worker": RpcWorkerSettings,
        "service": LeadServiceSettings,
        "uninstall": UninstallSettings,
    },
    BackSettings: {"doctor": BackSettings, "service": BackServiceSettings},
    ChatSettings: {},
}
"""The settings of each program, and of its subcommands."""

_COMPLETIONS = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/site-functions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}
"""Where each shell looks for the completions of a program, below a `share` folder."""
_COLUMNS = "100"
_CLAUSE = re.compile(r"[;(]|[:.] |, (?:as|so|which|with|for) ")


def command_line_files(share: Path) -> dict[Path, str]:
    """The text of each file below `share`."""
    os.environ["COLUMNS"] = _COLUMNS  # argparse breaks lines at the terminal's width
    return {share / path: text for kind in PROGRAMS for path, text in _files(kind)}


def write_command_line_files(share: Path) -> None:
    """Write them; others below `share` stay."""
    for path, text in command_line_files(share).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def commands_table() -> str:
    """The commands that have settings of their own, each with the first sentence of its help."""
    commands = [settings for named in PROGRAMS.values() for settings in named.values()]
    rows = [[f"`{each.program}`", _summary(each)] for each in commands if each not in PROGRAMS]
    return table(["command", "purpose"], rows)


def described(kind: type[ProgramSettings]) -> argparse.ArgumentParser:
    """The parser, which knows what values its options take, and shows all spellings."""
    parser = kind.sources().parser()
    annotations = {name: field.annotation for name, field in kind.options().items()}
    shown = {action.dest: action for action in actions(parser)}
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way, and shtab does the same
        metavar = str(action.metavar)
        if metavar.startswith("{"):
            action.choices = metavar.strip("{}").split(",")
        elif not action.option_strings and get_origin(annotations[action.dest]) is Literal:
            action.choices = get_args(annotations[action.dest])
        elif metavar == "FILE" or annotations.get(action.dest) is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        if action.help == argparse.SUPPRESS and (meant := shown.get(action.dest)):
            action.help = f"the same as {_meaning(meant, action.const)}"
    return parser


def _meaning(meant: argparse.Action, value: object) -> str:
    """How else `value` is given to the option `meant`."""
    names = [name for name in meant.option_strings if name.startswith("--")]
    if isinstance(value, bool):
        return next(name for name in names if name.startswith("--no-") != value)
    return f"{names[0]} {value}"


def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Those that are not hidden."""
    return [each for each in parser._actions if each.help != argparse.SUPPRESS]  # noqa: SLF001 - as above


def _files(kind: type[ProgramSettings]) -> Iterator[tuple[str, str]]:
    subcommands = PROGRAMS[kind]
    yield f"man/man1/{kind.program}.1", _man_page(kind, kind)
    for name, settings in subcommands.items():
        if settings is not kind:
            yield f"man/man1/{kind.program}-{name}.1", _man_page(settings, kind)
    parser = _with_short_help(described(kind))
    if subcommands:
        choices = parser.add_subparsers(parser_class=argparse.ArgumentParser)
        for name, settings in subcommands.items():
            choices.add_parser(name, help=_summary(settings))
            choices.choices[name] = _with_short_help(described(settings))
    for shell, path in _COMPLETIONS.items():
        lines = shtab.complete(parser, shell).splitlines()
        yield path.format(kind.program), "".join(f"{_with_long_names(line)}\n" for line in lines)


def _with_long_names(line: str) -> str:
    """Without what is wrong in shtab: in zsh and in fish it takes -ngl for -n -g -l."""
    line = line.rstrip().replace("_arguments -C -s ", "_arguments -C ")
    if not line.startswith("complete -c "):
        return line
    command, described_by, text = line.partition(" -d ")
    return re.sub(r" -s (?=[\w-]{2})", " -o ", command) + described_by + text


def _with_short_help(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Shorten the help of every option to the part that fits beside a completion."""
    for action in actions(parser):
        action.help = _CLAUSE.split(action.help or "", 1)[0]
    return parser


def _summary(kind: type[ProgramSettings]) -> str:
    return inspect.cleandoc(kind.__doc__ or "").splitlines()[0].rstrip(".:")


def _man_page(kind: type[ProgramSettings], program: type[ProgramSettings]) -> str:
    """That of a subcommand does not repeat what it has in common with its program."""
    parser = described(kind)
    page = Manpage(parser)
    page.prog = kind.program.replace(" ", "-")
    page.description = _summary(kind)
    page.date, page.source, page.manual = "", "llama-duo", "llama-duo"
    text = _roff(inspect.cleandoc(kind.__doc__ or ""))
    if kind is not program and issubclass(kind, program):
        known = {(each.dest, each.help) for each in actions(described(program))}
        for action in actions(parser):
            if (action.dest, action.help) in known:
                action.help = argparse.SUPPRESS
        text += f".PP\nThe options that {program.program}(1) describes are not repeated here.\n"
    parser.description = None
    page.add_section("description", "=", text)
    return str(page)


def _roff(text: str) -> str:
    """Paragraphs as roff. Indented paragraphs keep their line breaks."""
    shown = []
    for paragraph in text.replace("\\", "\\e").replace("-", "\\-").split("\n\n"):
        if paragraph.startswith("    "):
            shown.append(f".PP\n.nf\n{paragraph}\n.fi\n")
        else:
            shown.append(f".PP\n{paragraph}\n")
    return "".join(shown)


if __name__ == "__main__":
    write_command_line_files(Path(sys.argv[1]))
