"""Log lines about the connection to the lead. Uses neither network nor clock.

The last line is true at any time: it says whether the back is connected. Neither a lead that is away for days
nor a connection that breaks again and again fills the log.
"""

import logging
from enum import Enum

log = logging.getLogger("back")

STABLE_SECONDS = 10.0
"""A connection that has lasted this long is stable."""
_MAX_UNSTABLE = 3
"""After this many unstable connections in a row, the next ones are reported only once they are stable."""


class _Reported(Enum):
    """The state that the last log line reported."""

    NOTHING = "nothing"
    CONNECTED = "connected"
    LOST = "lost"
    UNREACHABLE = "unreachable"
    UNSTABLE = "unstable"


class ConnectionLog:
    """Receives each change, and logs those that make the last log line untrue."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._name = ""
        self._reported = _Reported.NOTHING
        self._n_unstable = 0

    def connected(self, name: str) -> None:
        """The lead has accepted this back and calls it `name`."""
        self._name = name
        self._n_unstable += 1
        if self._reported is not _Reported.UNSTABLE:
            self._report_connected()

    def stable(self) -> None:
        """The connection has lasted `STABLE_SECONDS`."""
        self._n_unstable = 0
        if self._reported is _Reported.UNSTABLE:
            self._report_connected()

    def lost(self, reason: str) -> None:
        """The connection has ended."""
        if self._reported is _Reported.UNSTABLE:
            log.debug("lost the connection to the lead at %s (%s)", self._url, reason)
        elif self._n_unstable < _MAX_UNSTABLE:
            log.info("lost the connection to the lead at %s (%s): reconnecting", self._url, reason)
            self._reported = _Reported.LOST
        else:
            log.info(
                "the connection to the lead at %s keeps breaking (%s): reconnecting; "
                "the next message follows once it has lasted %.0f s",
                self._url,
                reason,
                STABLE_SECONDS,
            )
            self._reported = _Reported.UNSTABLE

    def unreachable(self, reason: str) -> None:
        """An attempt to connect has failed."""
        if self._reported in {_Reported.UNREACHABLE, _Reported.UNSTABLE}:
            log.debug("no lead at %s (%s)", self._url, reason)
        else:
            log.info("no lead at %s (%s): trying again until there is one", self._url, reason)
            self._reported = _Reported.UNREACHABLE

    def _report_connected(self) -> None:
        log.info("drafting for %s as %s", self._url, self._name)
        self._reported = _Reported.CONNECTED
