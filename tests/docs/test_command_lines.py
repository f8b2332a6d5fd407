import re
import shutil
import subprocess

import pytest

from docs.generate.command_lines import PROGRAMS, actions, described, write_command_line_files
from docs.generate.pages import ROOT
from lead.cli import SUBCOMMANDS
from lead.settings.lead_settings import LeadSettings

COMMANDS = [
    (f"{program.program} {name}".strip(), settings)
    for program, subcommands in PROGRAMS.items()
    for name, settings in {"": program, **subcommands}.items()
]
PAGES = sorted({settings.program.replace(" ", "-") for _, settings in COMMANDS})
BASH = """
shopt -s extglob
source "$1/bash-completion/completions/$2"
COMP_WORDS=("${@:2}"); COMP_CWORD=$(($# - 2)); COMP_LINE="${*:2}"; COMP_POINT=${#COMP_LINE}
[[ $(complete -p "$2") =~ -F\\ ([^ ]+) ]] && "${BASH_REMATCH[1]}" "$2" "${@: -1}" "${@: -2:1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = 'source $argv[1]/fish/vendor_completions.d/$argv[2].fish; complete -C "$argv[2..]"'
ZSH = """
zmodload zsh/zpty
typed="${*:2}" found=$(mktemp)
zpty shell zsh -f -i
zpty -w shell "PROMPT=; stty -echo; to=$found; fpath=($1/zsh/site-functions \\$fpath)"
zpty -w shell 'autoload -Uz compinit; compinit -u -D; zle -C told complete-word told; bindkey "^I" told'
zpty -w shell 'told() { compadd() { local -a found; builtin compadd -O found "$@"'
zpty -w shell '[[ "$*" == *-[OAD]* ]] || print -rl -- $found >> $to; builtin compadd "$@" }'
zpty -w shell '_main_complete; print EN""D; exit }; print REA""DY'
zpty -r shell printed '*READY*'
zpty -w -n shell "$typed"$'\\t'
zpty -r shell printed '*END*'
cat $found; rm $found
"""
SHELLS = {
    "bash": ["bash", "--norc", "-c", BASH, "bash"],
    "zsh": ["zsh", "-f", "-c", ZSH, "zsh"],
    "fish": ["fish", "--no-config", "-c", FISH],
}


@pytest.fixture(scope="module")
def share(tmp_path_factory):
    folder = tmp_path_factory.mktemp("share")
    write_command_line_files(folder)
    return folder


@pytest.fixture(scope="module")
def completed(share):
    """A shell's completions of the last word."""

    def completed(shell, *words):
        if shutil.which(shell) is None:
            pytest.skip(f"no {shell}")
        command = [*SHELLS[shell], str(share), *words]
        no_input = subprocess.DEVNULL
        shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, stdin=no_input)
        return {line.split("\t")[0].strip() for line in shown.stdout.splitlines()}

    return completed


def spelled(settings):
    return {name for action in actions(described(settings)) for name in action.option_strings}


def test_all_subcommands_are_there():
    assert PROGRAMS[LeadSettings].keys() == SUBCOMMANDS.keys() | {"doctor"}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("command", "settings"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_a_shell_offers_every_spelling_of_every_option(completed, shell, command, settings):
    missing = spelled(settings) - completed(shell, *command.split(), "-")
    assert not missing or missing <= completed(shell, *command.split(), "--")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_offers_subcommands_and_choices_as_such(completed, shell):
    assert completed(shell, "lead", "") >= SUBCOMMANDS.keys() | {"doctor"}
    assert completed(shell, "back", "service", "") >= {"install", "remove", "status"}
    assert completed(shell, "lead", "service", "install", "--cache-type-k", "q") >= {"q8_0", "q4_0"}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("option", ["--model", "-m", "--ssl-cert-file"])
def test_a_shell_offers_files_where_an_option_names_one(completed, shell, option):
    assert "pyproject.toml" in completed(shell, "lead", option, "pyp")


@pytest.mark.parametrize(("command", "settings"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_the_man_pages_describe_every_option(share, command, settings):
    """The page of a subcommand counts together with its program's page."""
    pages = [share / "man/man1" / f"{name}.1" for name in {command.split()[0], command.replace(" ", "-")}]
    text = "".join(page.read_text() for page in pages if page.exists()).replace(r"\-", "-")
    assert spelled(settings) - set(re.findall(r"\\fB(-[^\\]+)\\fR", text)) == {"-h", "--help"}


@pytest.mark.parametrize("page", PAGES)
def test_man_has_nothing_to_say_against_a_page(share, page):
    if shutil.which("man") is None:
        pytest.skip("no man")
    command = ["man", "--warnings", "--local-file", str(share / "man/man1" / f"{page}.1")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert shown.stderr == ""
    assert f"{page} - " in re.sub(r"\s+", " ", shown.stdout)
