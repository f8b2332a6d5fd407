"""One question and its answer: streamed to the screen, tried again while the server is not there.

Knows the server and the screen; knows nothing of the conversation.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

from chat.answer import Answer
from chat.client import LeadClient
from chat.errors import AwayError, LeadError, NotReadyError
from chat.render import Screen
from chat.retry import Delays


class Asking:
    def __init__(
        self,
        client: LeadClient,
        screen: Screen,
        *,
        patient: bool,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        quiet: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`patient`: a server that is away is waited for, too; `quiet` is around each answer."""
        self._client = client
        self._screen = screen
        self._patient = patient
        self._clock = clock
        self._sleep = sleep
        self._quiet = quiet

    def new_answer(self) -> Answer:
        return Answer(self._clock)

    def ask(self, request: Mapping[str, Any], answer: Answer, *, shown: bool = True) -> None:
        """Stream one answer into `answer` and, if it is to be shown, to the screen.

        Raises LeadError, and KeyboardInterrupt after Ctrl-C; `answer` then has what came before.
        """
        delays, first = Delays(), True
        with self._quiet():
            while True:
                try:
                    return self._stream(request, answer, shown=shown)
                except (NotReadyError, AwayError) as error:
                    delay = self._delay(error, delays)
                    if delay is None:
                        raise
                    said = str(error).rstrip(".") if first else "Not yet"
                    first = False
                    self._screen.note(f"{said}; trying again in {delay:.0f} s, Ctrl-C gives up.")
                    self._sleep(delay)

    def _delay(self, error: LeadError, delays: Delays) -> float | None:
        if isinstance(error, NotReadyError):
            return delays.next(error.retry_after)
        return delays.next(None) if self._patient else None

    def _stream(self, request: Mapping[str, Any], answer: Answer, *, shown: bool) -> None:
        self._screen.begin_answer(answer, shown=shown)
        try:
            # Closing the iterator, however this ends, hangs up: the lead stops decoding for nobody.
            with closing(self._client.stream(request, answer)) as pieces:
                for piece in pieces:
                    self._screen.token(piece.text, piece.source, is_thought=piece.is_thought, more=piece.more)
        finally:
            self._screen.end_answer(empty=answer.finish_reason is not None and not answer.text)
