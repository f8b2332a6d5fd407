"""The read-eval-print loop: runs each line as a command, or sends it to the model."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from chat import report
from chat.client import LeadClient
from chat.commands import is_command, parse_assignment, parse_command
from chat.conversation import SavedConversations, read_conversation, write_conversation
from chat.errors import CommandError, LeadError, NotReadyError, RejectedError, UnreachableError
from chat.line_reader import LineReader
from chat.render import Screen
from chat.sampling import known_name
from chat.session import Session
from shared.diagnostics.findings import count


class Repl:
    """The loop of an interactive chat: reads lines, executes commands, asks questions."""

    def __init__(
        self,
        client: LeadClient,
        session: Session,
        screen: Screen,
        store: SavedConversations,
        *,
        interactive: bool,
    ) -> None:
        """`interactive`: lines are typed at a prompt, and Ctrl-C stops only the answer."""
        self._client = client
        self._session = session
        self._screen = screen
        self._store = store
        self._interactive = interactive
        self._file: Path | None = None  # the file that was loaded or saved last
        self._draft: str | None = None  # shown for editing as the next line
        self._commands: dict[str, Callable[[str], None]] = {
            "retry": lambda _: session.retry(),
            "edit": self._edit,
            "compare": session.compare,
            "new": self._new,
            "save": self._save,
            "load": self._load,
            "model": self._model,
            "system": self._system,
            "seed": self._seed,
            "set": self._set,
            "stats": self._show_stats,
            "backs": self._show_backs,
            "help": self._help,
        }

    def run(self, lines: LineReader) -> None:
        if self._interactive:
            self._greet()
        going_on = True
        while going_on:
            try:
                going_on = self.turn(lines.read(self._draft or ""))
            except EOFError:
                return
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                self._draft = None
                self._screen.note("Ctrl-C stops an answer. To leave, type :quit or press Ctrl-D.")

    def turn(self, line: str) -> bool:
        """Handle one line; return False if it asks to exit."""
        is_edited, self._draft = self._draft is not None, None
        if not line.strip():
            return True
        if not is_command(line):
            self._session.ask(line.strip(), instead=is_edited)
            return True
        try:
            command = parse_command(line)
            if command.name == "quit":
                return False
            self._commands[command.name](command.argument)
        except (CommandError, LeadError) as error:
            self._session.fail(error)
        return True

    def _greet(self) -> None:
        whom = self._client.url
        try:
            names = self._client.models()
            whom = f"{names[0]} at {whom}" if len(names) == 1 else whom
        except (UnreachableError, NotReadyError) as error:
            self._screen.error(str(error))
        except LeadError as error:
            if isinstance(error, RejectedError) and error.wants_key:
                self._screen.error(str(error))
            # Otherwise the server may still answer questions.
        self._screen.note(f"Talking to {whom}. :help lists the commands, Ctrl-D leaves.")

    def _edit(self, argument: str) -> None:
        question = self._session.last_question
        if argument:
            self._session.ask(argument, instead=True)
        elif self._interactive:
            self._draft = question
        else:
            raise CommandError(":edit needs the new question, as in ':edit Why?'.")

    def _new(self, _: str) -> None:
        self._session.begin(self._session.conversation.emptied())
        self._file = None
        self._screen.note("A new conversation.")

    def _save(self, name: str) -> None:
        conversation = self._session.conversation
        if not conversation.turns:
            raise CommandError("There is nothing to save yet.")
        path = self._store.path(name) if name else self._file or self._store.new_path(conversation)
        if path != self._file and path.exists():
            raise CommandError(f"{path} already exists. Choose another name.")
        write_conversation(path, conversation)
        self._file = path
        self._screen.show(f"Saved to {path}. ':load {self._store.name_of(path)}' loads it.")

    def _load(self, name: str) -> None:
        if not name:
            self._screen.show(report.names(self._store.names(), "There are no saved conversations yet."))
            return
        path = self._store.find(name)
        conversation = read_conversation(path)
        self._session.begin(conversation)
        self._file = path
        n_turns = count(len(conversation.turns), "question")
        self._screen.note(f"{n_turns} so far." + (" The last one:" if conversation.turns else ""))
        for turn in conversation.turns[-1:]:
            self._screen.show(f"> {turn.question}")
            self._screen.show_answer(turn.answer)

    def _model(self, name: str) -> None:
        conversation = self._session.conversation
        if name:
            conversation.model = None if name.lower() == "none" else name
            self._screen.show(f"Model: {conversation.model or 'the server chooses'}")
            self._warn_of_unknown_model(conversation.model)
        else:
            self._screen.show(report.models(self._client.models(), conversation.model))

    def _warn_of_unknown_model(self, name: str | None) -> None:
        names: list[str] = []
        with suppress(LeadError):
            names = self._client.models() if name else []
        if names and name not in names:
            self._screen.note(
                "The server does not list this model. It may refuse requests, or use another model."
            )

    def _system(self, argument: str) -> None:
        conversation = self._session.conversation
        if argument:
            conversation.system = None if argument.lower() == "none" else argument
        system = conversation.system
        self._screen.show(f"System prompt: {system}" if system else "There is no system prompt.")

    def _seed(self, argument: str) -> None:
        self._set(f"seed {argument}")
        last = self._session.stats.last
        if not argument and last and last.seed is not None:
            self._screen.show(f"The last answer's seed was {last.seed}.")

    def _set(self, argument: str) -> None:
        conversation = self._session.conversation
        if not argument:
            self._screen.show(report.settings(conversation))
            return
        name, value = parse_assignment(argument)
        if value:
            conversation.sampling = conversation.sampling.with_value(name, value)
        self._screen.show(report.table([report.setting_row(conversation.sampling, known_name(name))]))

    def _show_stats(self, _: str) -> None:
        self._screen.show(report.stats(self._session.stats))
        self._screen.show_legend(self._session.stats.n_accepted_by_source)

    def _show_backs(self, _: str) -> None:
        self._screen.show(report.backs(self._client.backs(), self._screen.columns))

    def _help(self, _: str) -> None:
        self._screen.show(report.help_text(self._screen.columns))
