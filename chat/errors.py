"""The tree of errors between chat and a lead.

    DuoError
    ├── CommandError                an invalid line that starts with ':'
    └── LeadError                   there is no complete answer
        ├── UnreachableError        nothing listens at the address
        ├── NotReadyError           503 or 429: loading, restarting or full; a retry may succeed
        ├── RejectedError           any other HTTP status that is not 200
        └── IncompleteAnswerError   the stream ended early, had an error, or was not a stream of chunks

Every message is a sentence that a person can act on. It may quote the server, so sanitize it before display.
"""

from http import HTTPStatus

from shared.errors import DuoError


class CommandError(DuoError):
    """A line that starts with ':' is not a valid command."""


class LeadError(DuoError):
    """There is no complete answer."""


class UnreachableError(LeadError):
    """No server listens at the address."""


class NotReadyError(LeadError):
    """The server cannot answer yet. `retry_after` is in seconds; None if the server named no time."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RejectedError(LeadError):
    """The server answered with an error. `status` is the HTTP status, `message` the server's message."""

    def __init__(self, explanation: str, status: int, message: str) -> None:
        super().__init__(explanation)
        self.status = status
        self.message = message

    @property
    def wants_key(self) -> bool:
        return self.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class IncompleteAnswerError(LeadError):
    """The stream ended early, carried an error, or was not a stream of chunks."""
