"""The keyboard: a prompt with line editing, history over sessions, and completion of commands."""

from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output
from prompt_toolkit.output.defaults import create_output

from chat.commands import COMMANDS
from chat.sampling import Sampling

PROMPT = "> "


class PromptLines:
    """Lines typed by a person, `Lines` for the loop."""

    def __init__(self, history: History, source: Input | None = None, output: Output | None = None) -> None:
        """`source` and `output` stand in for the terminal in tests."""
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            history=history,
            completer=WordCompleter(_completions(), sentence=True),
            complete_while_typing=False,
            key_bindings=_key_bindings(),
            input=source,
            # With stdout redirected the prompt still belongs on the terminal.
            output=output or create_output(always_prefer_tty=True),
        )

    def read(self) -> str:
        """As `Lines.read`; Ctrl-C with something typed only empties the line."""
        while True:
            with suppress(_LineDropped):
                return self._read_once()

    def _read_once(self) -> str:
        try:
            return self._session.prompt()
        except KeyboardInterrupt:
            if self._session.default_buffer.text:
                raise _LineDropped from None
            raise


class _LineDropped(Exception):  # noqa: N818  (an outcome, not an error)
    """Ctrl-C while something was typed."""


def open_history(path: Path) -> History:
    """The history file at `path`, readable by its owner alone; raises OSError where it cannot be written."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    with path.open("ab"):
        return FileHistory(path)


def forgetful_history() -> History:
    """Up and Down within this session only."""
    return InMemoryHistory()


def _completions() -> list[str]:
    commands = [f":{entry.names[0]}" for entry in COMMANDS]
    return [*commands, *(f":set {name}" for name in Sampling.model_fields)]


def _key_bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings
