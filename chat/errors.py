"""What can go wrong between chat and a lead, in one tree.

    DuoError
    ├── CommandError           a line that starts with ':' and cannot be obeyed
    └── LeadError              there is no (whole) answer
        ├── AwayError          nobody listens at the address
        ├── NotReadyError      503 or 429: loading, restarting or full; the same request may succeed later
        ├── RefusedError       any other HTTP status that is not 200
        └── BrokenOffError     the stream ended early, carried an error, or was no stream of answers

Every message is a sentence that a person can act on; it may quote the server: sanitise it to show it.
"""

from http import HTTPStatus

from shared.errors import DuoError


class CommandError(DuoError):
    """A line that starts with ':' and cannot be obeyed."""


class LeadError(DuoError):
    """There is no answer, or not a whole one."""


class AwayError(LeadError):
    """Nobody listens at the address."""


class NotReadyError(LeadError):
    """The server asks for patience; `retry_after` is in seconds, None where it did not say."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RefusedError(LeadError):
    """The server answered with an error; `status` is HTTP's, `message` what the server said itself."""

    def __init__(self, explanation: str, status: int, message: str) -> None:
        super().__init__(explanation)
        self.status = status
        self.message = message

    @property
    def wants_key(self) -> bool:
        """No key was given, or not the right one."""
        return self.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class BrokenOffError(LeadError):
    """The stream ended early, carried an error, or was no stream of answers."""
