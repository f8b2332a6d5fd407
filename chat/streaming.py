"""Streams an answer to the screen, and retries while the server is not ready.

It knows the server and the screen, but nothing of the conversation.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from itertools import count
from typing import Any

from chat.answer import ChatAnswer
from chat.client import LeadClient
from chat.errors import LeadError, NotReadyError, UnreachableError
from chat.render import Screen

N_RETRIES = 6
FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 30.0


def retry_delay(n_before: int, retry_after: float | None) -> float | None:
    """Return the seconds to wait before the next retry, after `n_before` retries; None: give up.

    The delay is the server's Retry-After (`retry_after`) if it is set. Otherwise it doubles from one second.
    """
    if n_before == N_RETRIES:
        return None
    return min(FIRST_DELAY_S * 2**n_before if retry_after is None else retry_after, LONGEST_DELAY_S)


class AnswerStreamer:
    def __init__(
        self,
        client: LeadClient,
        screen: Screen,
        *,
        wait_until_reachable: bool,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`wait_until_reachable`: retry even while no server listens. `around`: makes an answer's context."""
        self._client = client
        self._screen = screen
        self._wait_until_reachable = wait_until_reachable
        self._clock = clock
        self._sleep = sleep
        self._around = around

    def new_answer(self) -> ChatAnswer:
        return ChatAnswer(self._clock)

    def stream(self, request: Mapping[str, Any], answer: ChatAnswer, *, shown: bool = True) -> None:
        """Stream an answer into `answer` and, if `shown`, to the screen. Tries again while the server is not
        ready.

        Raises LeadError, and KeyboardInterrupt after Ctrl-C; `answer` then has the text that arrived before.
        """
        with self._around():
            for n_before in count():
                try:
                    self._stream(request, answer, shown=shown)
                except (NotReadyError, UnreachableError) as error:
                    delay = self._delay(error, n_before)
                    if delay is None:
                        raise
                    message = "Not yet" if n_before else str(error).rstrip(".")
                    self._screen.note(f"{message}. Trying again in {delay:.0f} s. Press Ctrl-C to give up.")
                    self._sleep(delay)
                    if isinstance(error, UnreachableError):
                        self._client.locate_again()
                else:
                    return

    def _delay(self, error: LeadError, n_before: int) -> float | None:
        if isinstance(error, NotReadyError):
            return retry_delay(n_before, error.retry_after)
        return retry_delay(n_before, None) if self._wait_until_reachable else None

    def _stream(self, request: Mapping[str, Any], answer: ChatAnswer, *, shown: bool) -> None:
        self._screen.begin_answer(answer, shown=shown)
        try:
            # Closing the iterator hangs up, however this ends, so that the lead stops decoding.
            with closing(self._client.stream(request, answer)) as pieces:
                for piece in pieces:
                    self._screen.show_piece(piece)
        finally:
            self._screen.end_answer(empty=answer.finish_reason is not None and not answer.text)
