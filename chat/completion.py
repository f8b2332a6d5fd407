"""Tab completion of commands, parameters, saved conversations and models."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from chat.commands import COMMANDS
from chat.sampling import Sampling
from shared.terminal import sanitize

Names = Callable[[], Sequence[str]]


class CommandCompleter(Completer):
    """Completes only lines that begin with a colon, never messages to the model."""

    def __init__(self, arguments: Mapping[str, Names]) -> None:
        """`arguments`: by command, a function that lists its arguments, called when Tab is pressed there."""
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
