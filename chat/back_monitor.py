"""Polls the server for its backs every few seconds in the background, for the status line."""

import threading
from collections.abc import Callable, Sequence
from typing import Self

from chat import report
from chat.errors import LeadError, RejectedError, UnreachableError
from shared.diagnostics.lead_probe import BackReport

INTERVAL_S = 3.0
_UNREACHABLE = "the server is unreachable"


class BackMonitor:
    """A background thread that polls the server for its backs until it is closed, or until the server
    turns out not to report its backs.
    """

    def __init__(
        self, get_backs: Callable[[], Sequence[BackReport] | None], interval_s: float = INTERVAL_S
    ) -> None:
        """get_backs: called in a separate thread; may raise LeadError."""
        self.status = ""
        self._get_backs = get_backs
        self._interval_s = interval_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()  # the thread may be in the middle of a request, so this does not wait for it

    @property
    def status_during_an_answer(self) -> str:
        """The status line's text while an answer arrives. A server that does not reply to other requests
        at this time is shutting down, not unreachable.
        """
        return "the server accepts no new requests" if self.status == _UNREACHABLE else self.status

    def poll(self) -> bool:
        try:
            found = self._get_backs()
        except UnreachableError:
            self.status = _UNREACHABLE
        except RejectedError:
            self.status = ""
            return False
        except LeadError:
            self.status = "backs unknown"
        else:
            self.status = report.connected(found)
            return found is not None
        return True

    def _run(self) -> None:
        while self.poll() and not self._closed.wait(self._interval_s):
            pass
