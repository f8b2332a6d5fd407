"""Commands in pages exist: subcommands, options, modules and targets of make."""

import importlib.util
import re
import shlex
from functools import cache

import pytest

from bench.__main__ import PARTS, main
from docs.generate.command_lines import PROGRAMS, actions, described
from docs.generate.pages import ROOT

PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "docker/*.md", "deploy/**/*.md")
    for path in ROOT.glob(pattern)
)
CODE = re.compile(r"^```\w*\n(.*?)^```|(?<!`)`([^`\n]+)`", re.MULTILINE | re.DOTALL)
SETTINGS = {
    tuple(f"{program.program} {name}".split()): settings
    for program, subcommands in PROGRAMS.items()
    for name, settings in {"": program, **subcommands}.items()
}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
OPTION = re.compile(r"--?[a-zA-Z][\w-]*")


def words(line):
    """The words of a shell's line, without comments."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # a lone apostrophe
        return line.split()


def commands(text):
    """Every simple command in code, as words, without leading variables."""
    for block, inline in CODE.findall(text):
        for line in re.sub(r"\\\n", " ", block or inline).splitlines():
            command = []
            for word in [*words(line), "&&"]:
                if word in ("&&", "|", "||", ";", "&"):
                    yield command
                    command = []
                elif command or not (word == "sudo" or re.fullmatch(r"\w+=.*", word)):
                    command.append(word)


@cache
def own_options(name):
    parser = described(SETTINGS[name])
    return {option for action in actions(parser) for option in action.option_strings}


def options(capsys, command):
    """The options of a command; None if the project has no such command."""
    program = command[0].rpartition("/")[2]
    named = [name for name in ((program, *command[1:2]), (program,)) if name in SETTINGS]
    if named:
        return own_options(named[0])
    if command[1:3] == ["-m", "bench"] and len(command) > 3:
        with pytest.raises(SystemExit):
            main([command[3], "--help"])
        return {*OPTION.findall(capsys.readouterr().out), "-m"}
    return None


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_options_in_commands_exist(page, capsys):
    for command in filter(None, commands((ROOT / page).read_text("utf-8"))):
        known = options(capsys, command)
        if known is not None:
            used = {found[0] for word in command if (found := OPTION.match(word))}
            assert used <= known | {"--help-all", "--version"}, shlex.join(command)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_modules_and_targets_in_commands_exist(page):
    for command in filter(None, commands((ROOT / page).read_text("utf-8"))):
        match [command[0].rpartition("/")[2], *command[1:]]:
            case ["python" | "python3", "-m", "bench", part, *_]:
                assert part in PARTS, shlex.join(command)
            case ["python" | "python3", "-m", module, *_] if module != "venv":
                assert importlib.util.find_spec(module), shlex.join(command)
            case ["make", target, *_] if re.fullmatch(r"[a-z-]+", target):
                assert target in TARGETS, shlex.join(command)
