"""Who drafts for the server now: asked every few seconds in the background, for the status line."""

import threading
from collections.abc import Callable, Sequence
from typing import Self

from chat import report
from chat.errors import AwayError, LeadError, RefusedError
from chat.wire import Back

INTERVAL_S = 3.0
_AWAY = "the server is away"


class Watch:
    """Until closed, or until it is clear that there is nothing to see."""

    def __init__(self, look: Callable[[], Sequence[Back] | None], interval_s: float = INTERVAL_S) -> None:
        """`look` is asked from a thread of its own; it may raise LeadError."""
        self.words = ""
        self._look = look
        self._interval_s = interval_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()  # the thread may be in the middle of a request: nobody waits for it

    @property
    def words_beside_an_answer(self) -> str:
        """The same while an answer comes: what sends it is not away, it only takes nobody new as it stops."""
        return "the server takes no new requests" if self.words == _AWAY else self.words

    def look(self) -> bool:
        """Look once; whether it is worth looking again."""
        try:
            found = self._look()
        except AwayError:
            self.words = _AWAY
        except RefusedError:
            self.words = ""
            return False
        except LeadError:
            self.words = "backs unknown"
        else:
            self.words = report.connected(found)
            return found is not None
        return True

    def _run(self) -> None:
        while self.look() and not self._closed.wait(self._interval_s):
            pass
