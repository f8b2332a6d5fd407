"""The commands (lines that begin with ':'): their names, help texts and parsers. No I/O."""

import difflib
from dataclasses import dataclass

from chat.errors import CommandError


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the output of `:help`."""

    names: tuple[str, ...]
    argument: str
    meaning: str

    @property
    def usage(self) -> str:
        return ", ".join(f":{name}" for name in self.names) + (f" {self.argument}" if self.argument else "")


COMMANDS = (
    Entry(("retry",), "", "ask the last question again"),
    Entry(("edit",), "TEXT", "replace the last question. Without TEXT: edit it at the prompt"),
    Entry(
        ("compare",),
        "TEXT",
        "ask with and without speculation, and compare. Without TEXT: use the last question",
    ),
    Entry(("new",), "", "start a new conversation with the same system prompt and parameters"),
    Entry(("save",), "NAME", "save the conversation. Without NAME: use its current name"),
    Entry(("load",), "NAME", "continue a saved conversation. Without NAME: list all"),
    Entry(("model",), "NAME", "use this model (none: the server's choice). Without NAME: list all"),
    Entry(("system",), "TEXT", "set the system prompt (none: remove it). Without TEXT: show it"),
    Entry(("seed",), "N", "set the seed, for the same text each time (none: random). Without N: show it"),
    Entry(("set",), "NAME VALUE", "set a sampling parameter (none: its default). Without NAME: list all"),
    Entry(("stats",), "", "show speed and accepted drafts of this session and the last answer"),
    Entry(("backs",), "", "show the backs that draft for this server"),
    Entry(("help",), "", "this list"),
    Entry(("quit", "q", "exit"), "", "quit (also Ctrl-D)"),
)

_BY_NAME = {name: entry for entry in COMMANDS for name in entry.names}


@dataclass(frozen=True, slots=True)
class Command:
    """A parsed command. name: the first name of its entry, even if an alias was typed."""

    name: str
    argument: str


def is_command(line: str) -> bool:
    return line.startswith(":")


def parse_command(line: str) -> Command:
    """Parse a line for which `is_command` holds. Raises CommandError for an unknown or misused command."""
    typed, argument = [*line.removeprefix(":").split(None, 1), "", ""][:2]
    entry = _BY_NAME.get(typed.lower())
    if entry is None:
        raise CommandError(_unknown(typed))
    if argument and not entry.argument:
        raise CommandError(f":{entry.names[0]} takes no argument.")
    return Command(entry.names[0], argument.strip())


def parse_assignment(argument: str) -> tuple[str, str]:
    """Split `temperature 0.2` or `temperature=0.2` into (name, value); the value is empty if there
    is none.
    """
    name, _, value = argument.replace("=", " ", 1).partition(" ")
    return name, value.strip()


def _unknown(typed: str) -> str:
    if not typed:
        return "A command needs a name. :help lists the commands."
    begun = [name for name in _BY_NAME if name.startswith(typed.lower())]
    close = begun or difflib.get_close_matches(typed.lower(), _BY_NAME, n=2)
    hint = f"Did you mean {' or '.join(f':{name}' for name in close)}?" if close else ":help lists them."
    return f"There is no command :{typed}. {hint} (To send it to the model, put a space before the colon.)"
