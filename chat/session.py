"""Asks questions, retries and compares, and adds answers to the conversation."""

import secrets
from collections.abc import Callable

from chat import report
from chat.answer import WITHOUT_SPECULATION, ChatAnswer, Comparison, SessionStats
from chat.conversation import ChatConversation
from chat.errors import CommandError, LeadError
from chat.render import Screen
from chat.streaming import AnswerStreamer

_SEED_BITS = 32
_LEFT_OUT = "The question was left out of the conversation. :retry asks it again."


class Session:
    """Asks the questions of one conversation."""

    def __init__(
        self,
        streamer: AnswerStreamer,
        conversation: ChatConversation,
        screen: Screen,
        *,
        interactive: bool,
        draw_seed: Callable[[], int] = lambda: secrets.randbits(_SEED_BITS),
    ) -> None:
        """`interactive`: Ctrl-C stops an answer, not the program."""
        self.conversation = conversation
        self.stats = SessionStats()
        self.n_failed = 0
        self._streamer = streamer
        self._screen = screen
        self._interactive = interactive
        self._draw_seed = draw_seed
        self._unanswered: tuple[str, bool] | None = None

    @property
    def last_question(self) -> str:
        """The latest question, whether answered or not. Raises CommandError if there is none."""
        if self._unanswered:
            return self._unanswered[0]
        if self.conversation.turns:
            return self.conversation.turns[-1].question
        raise CommandError("Nothing has been asked yet.")

    def ask(self, question: str, *, instead: bool = False) -> None:
        """Stream the answer to the screen; the conversation gets question and answer together or neither.

        `instead`: replace the last question, if that is in the conversation.
        """
        instead = self._unanswered[1] if instead and self._unanswered else instead
        instead = instead and bool(self.conversation.turns)
        self._unanswered = (question, instead)
        answer = self._streamer.new_answer()
        try:
            self._streamer.stream(self.conversation.request(question, instead=instead), answer)
        except LeadError as error:
            self.fail(error)
            if self._interactive:
                self._screen.note(_LEFT_OUT)
        except KeyboardInterrupt:
            if not self._interactive:
                raise
            self._stopped(question, answer, instead=instead)
        else:
            self._keep(question, answer, instead=instead)
            self._screen.show_summary(answer)

    def retry(self) -> None:
        question = self.last_question
        seed, last = self.conversation.sampling.chosen.get("seed"), self.stats.last
        if not self._unanswered and last and seed is not None and seed == last.seed:
            self._screen.note(
                "The same seed gives the same answer. Use ':seed none' for a new seed each time."
            )
        self.ask(question, instead=True)

    def compare(self, question: str) -> None:
        """Ask with and without speculation and report both results; the conversation does not change."""
        instead = not question and not self._unanswered
        request = self.conversation.request(question or self.last_question, instead=instead)
        seeded = {"seed": self._draw_seed(), **request}
        result = Comparison(self._streamer.new_answer(), self._streamer.new_answer())
        try:
            self._streamer.stream(seeded, result.with_drafts)
            self._screen.note("Asking again without speculation ...")
            self._streamer.stream(seeded | WITHOUT_SPECULATION, result.without, shown=False)
        except KeyboardInterrupt:
            if not self._interactive:
                raise
            self._screen.note("Stopped: there is nothing to compare.")
        else:
            self._screen.show(report.comparison(result))

    def begin(self, conversation: ChatConversation) -> None:
        self.conversation = conversation
        self._unanswered = None

    def fail(self, error: Exception) -> None:
        self.n_failed += 1
        self._screen.error(str(error))

    def _stopped(self, question: str, answer: ChatAnswer, *, instead: bool) -> None:
        if not answer.text:
            self._screen.note(f"Stopped before the answer began. {_LEFT_OUT}")
            return
        self._keep(question, answer, instead=instead)
        self._screen.show_summary(answer)

    def _keep(self, question: str, answer: ChatAnswer, *, instead: bool) -> None:
        self.conversation.add(question, answer.text, instead=instead)
        self.stats.add(answer)
        self._unanswered = None
