"""The loop: a line comes, a command is obeyed or the model is asked, the answer streams to the screen.

Knows the order of things only; the terminal, HTTP, the clock and the sleep are behind seams.
"""

import time
from collections.abc import Callable
from contextlib import closing

from chat import report
from chat.answer import Answer
from chat.client import LeadClient
from chat.commands import Command, is_command, parse_assignment, parse_command
from chat.conversation import Conversation
from chat.errors import CommandError, LeadError, NotReadyError
from chat.lines import Lines
from chat.render import Screen
from chat.retry import Delays
from chat.sampling import known_name
from chat.stats import Stats


class Repl:
    def __init__(
        self,
        client: LeadClient,
        conversation: Conversation,
        screen: Screen,
        *,
        interactive: bool,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`interactive`: a person types; Ctrl-C then stops only the answer, and answers get a summary."""
        self.n_failed = 0
        self._client = client
        self._conversation = conversation
        self._screen = screen
        self._interactive = interactive
        self._clock = clock
        self._sleep = sleep
        self._stats = Stats()
        self._commands: dict[str, Callable[[str], None]] = {
            "new": self._new,
            "system": self._system,
            "set": self._set,
            "stats": self._show_stats,
            "backs": self._show_backs,
            "help": self._help,
        }

    def run(self, lines: Lines) -> None:
        """Handle lines until they end or one asks to leave."""
        if self._interactive:
            self._screen.note(f"Talking to {self._client.url}. :help lists the commands, Ctrl-D leaves.")
        going_on = True
        while going_on:
            try:
                going_on = self.turn(lines.read())
            except EOFError:
                return
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                self._screen.note("Ctrl-C stops an answer. To leave, type :quit or press Ctrl-D.")

    def turn(self, line: str) -> bool:
        """Handle one line; False when it asks to leave."""
        if not line.strip():
            return True
        if not is_command(line):
            self._ask(line.strip())
            return True
        try:
            command = parse_command(line)
            if command.name == "quit":
                return False
            self._obey(command)
        except (CommandError, LeadError) as error:
            self._fail(error)
        return True

    def _obey(self, command: Command) -> None:
        self._commands[command.name](command.argument)

    def _ask(self, question: str) -> None:
        """Stream the answer to the screen; the conversation gets question and answer together or neither."""
        answer = Answer(self._clock)
        try:
            self._receive(question, answer)
        except LeadError as error:
            self._screen.end_answer()
            self._fail(error)
            self._screen.note(self._left_out())
        except KeyboardInterrupt:
            self._screen.end_answer()
            if not self._interactive:
                raise
            self._stopped(question, answer)
        else:
            self._screen.end_answer(empty=not answer.text)
            self._keep(question, answer)
            if self._interactive:
                self._screen.note(report.summary(answer))

    def _receive(self, question: str, answer: Answer) -> None:
        """Stream one answer; a server that is not ready yet is asked again a few times."""
        delays = Delays()
        while True:
            try:
                return self._stream(question, answer)
            except NotReadyError as error:
                delay = delays.next(error.retry_after)
                if delay is None:
                    raise
                said = str(error).rstrip(".")
                self._screen.note(f"{said}; trying again in {delay:.0f} s, Ctrl-C gives up.")
                self._sleep(delay)

    def _stream(self, question: str, answer: Answer) -> None:
        request = self._conversation.request(question)
        # Closing the iterator, however this ends, hangs up: the lead stops decoding for nobody.
        with closing(self._client.stream(request, answer)) as tokens:
            for token in tokens:
                self._screen.token(token.text, token.source)

    def _stopped(self, question: str, answer: Answer) -> None:
        if not answer.text:
            self._screen.note(f"Stopped before the answer began. {self._left_out()}")
            return
        self._keep(question, answer)
        n_tokens = report.count(answer.figures.n_tokens, "token")
        self._screen.note(f"Stopped after {n_tokens}; the answer so far stays in the conversation.")

    def _keep(self, question: str, answer: Answer) -> None:
        self._conversation.add(question, answer.text)
        self._stats.add(answer)

    def _left_out(self) -> str:
        again = " Press Up to send it again." if self._interactive else ""
        return f"The question was left out of the conversation.{again}"

    def _fail(self, error: Exception) -> None:
        self.n_failed += 1
        self._screen.error(str(error))

    def _new(self, _: str) -> None:
        self._conversation.forget()
        self._screen.note("A new conversation.")

    def _system(self, argument: str) -> None:
        if argument:
            self._conversation.system = None if argument.lower() == "none" else argument
        system = self._conversation.system
        self._screen.say(f"System prompt: {system}" if system else "There is no system prompt.")

    def _set(self, argument: str) -> None:
        if not argument:
            self._screen.say(report.settings(self._conversation))
            return
        name, value = parse_assignment(argument)
        if value:
            self._conversation.sampling = self._conversation.sampling.with_value(name, value)
        self._screen.say(report.table([report.setting_row(self._conversation.sampling, known_name(name))]))

    def _show_stats(self, _: str) -> None:
        self._screen.say(report.stats(self._stats))
        self._screen.sources(self._stats.n_accepted_by_source)

    def _show_backs(self, _: str) -> None:
        self._screen.say(report.backs(self._client.backs()))

    def _help(self, _: str) -> None:
        self._screen.say(report.help_text())
