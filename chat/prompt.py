"""The interactive prompt: line editing, history across sessions, completion, and a status line below."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output
from prompt_toolkit.output.defaults import create_output
from prompt_toolkit.styles import Style

from chat.commands import COMMANDS
from chat.sampling import Sampling
from shared.terminal import sanitize

PROMPT = "> "
CONTINUATION = ". "

_STATUS_INTERVAL_S = 1.0
_MENU_ROWS = 6
_STYLE = Style.from_dict(
    {"prompt": "bold", "continuation": "ansibrightblack", "bottom-toolbar": "noreverse ansibrightblack"}
)


class PromptReader:
    """A `LineReader` for the keyboard, with line editing."""

    def __init__(
        self,
        history: History | None,
        completer: Completer,
        status: Callable[[], str],
        source: Input | None = None,
        output: Output | None = None,
    ) -> None:
        """history: None for a history of this session only. status: returns the text of the status line.

        source, output: replace the terminal in tests.
        """
        self._session: PromptSession[str] = PromptSession(
            [("class:prompt", PROMPT)],
            history=history,
            completer=completer,
            complete_while_typing=Condition(self._is_command),
            reserve_space_for_menu=_MENU_ROWS,
            auto_suggest=AutoSuggestFromHistory(),
            multiline=True,
            prompt_continuation=[("class:continuation", CONTINUATION)],
            bottom_toolbar=lambda: sanitize(status()),
            refresh_interval=_STATUS_INTERVAL_S,
            enable_open_in_editor=True,
            tempfile_suffix=".md",
            style=_STYLE,
            key_bindings=_key_bindings(),
            input=source,
            # The prompt is shown on the terminal even if stdout is redirected.
            output=output or create_output(always_prefer_tty=True),
        )

    def read(self, draft: str = "") -> str:
        """Read a line (`LineReader.read`). Ctrl-C clears it, or raises KeyboardInterrupt if it is empty."""
        while True:
            try:
                return self._session.prompt(default=draft)
            except KeyboardInterrupt:
                if not self._session.default_buffer.text:
                    raise
                draft = ""

    def _is_command(self) -> bool:
        return self._session.default_buffer.text.startswith(":")


def open_history(path: Path) -> History:
    """Return the history file at `path`, readable only by its owner; raises OSError if it cannot be
    written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    with path.open("ab"):
        return FileHistory(path)


def _key_bindings() -> KeyBindings:
    """Enter sends the text, or starts a new line after a backslash; Alt-Enter always starts a new line."""
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    @bindings.add("escape", "c-j")  # what Alt-Enter sends if it is pressed during an answer
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


Names = Callable[[], Sequence[str]]


class CommandCompleter(Completer):
    """Completes only lines that begin with a colon, never messages to the model."""

    def __init__(self, arguments: Mapping[str, Names]) -> None:
        """`arguments`: for each command, a function that lists its arguments when Tab is pressed there."""
        self._offered: dict[str, Names] = {"set": lambda: list(Sampling.model_fields), **arguments}

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        typed = document.text_before_cursor
        if not typed.startswith(":") or "\n" in typed:
            return
        command, space, argument = typed.partition(" ")
        if not space:
            yield from self._commands(command)
        elif complete_event.completion_requested or command == ":set":
            yield from self._arguments(command.removeprefix(":"), argument)

    @staticmethod
    def _commands(typed: str) -> Iterable[Completion]:
        for entry in COMMANDS:
            name = f":{entry.names[0]}"
            if name.startswith(typed.lower()):
                yield Completion(name, -len(typed), display_meta=entry.meaning)

    def _arguments(self, command: str, typed: str) -> Iterable[Completion]:
        for name in self._offered.get(command, list)():
            # Models are named by the server.
            if name.startswith(typed) and name == sanitize(name):
                yield Completion(name, -len(typed))
