"""Logging for the programs: one logger per role; only `main` sets up a handler, which writes to stderr."""

import json
import logging
import os
import stat
import sys
import time
from datetime import UTC, datetime
from typing import Literal, TextIO

from shared.terminal import sanitize

LogLevel = Literal["debug", "info", "warning", "error"]

_N_TRIES, _PAUSE_SECONDS = 10, 0.01
"""How often, and for how long each time, a line waits for a slow reader."""


class TextFormatter(logging.Formatter):
    """Formats events as lines that are safe for a terminal: messages may quote peers, files and models.

    Further lines of a message or a trace are indented, so that quoted text cannot pose as another event.
    """

    def format(self, record: logging.LogRecord) -> str:
        return sanitize(super().format(record)).rstrip("\n").replace("\n", "\n    ")


class JsonFormatter(logging.Formatter):
    """Formats events as JSON objects, one per line, in ASCII.

    `extra={"fields": lambda: {...}}` adds keys, for programs that read the log.
    """

    def format(self, record: logging.LogRecord) -> str:
        item = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", dict)(),
        }
        if record.exc_info:
            item["trace"] = self.formatException(record.exc_info)
        return json.dumps(item, default=str)


class UnblockedHandler(logging.StreamHandler[TextIO]):
    """Writes to a pipe or terminal without ever blocking the program.

    While the pipe is full (`lead 2>&1 | less`, or a hanging connection), lines are dropped. Their number is
    logged when the pipe is read again.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._n_lost = 0
        self._own = _own_description(stream)

    def emit(self, record: logging.LogRecord) -> None:
        if self._own is None:
            super().emit(record)
            return
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - as every handler: a wrong message does not end who logs it
            self.handleError(record)
            return
        if self._n_lost and self._put(self._own, self.format(_lost(self._n_lost))):
            self._n_lost = 0
        if self._n_lost or not self._put(self._own, line):
            self._n_lost += 1

    def _put(self, descriptor: int, line: str) -> bool:
        """Write the text; return whether all of it was written."""
        left = f"{line}{self.terminator}".encode(errors="backslashreplace")
        n_tries = 1 if self._n_lost else _N_TRIES
        while left and n_tries:
            try:
                left = left[os.write(descriptor, left) :]
            except BlockingIOError:
                n_tries -= 1
                time.sleep(_PAUSE_SECONDS if n_tries else 0)
            except OSError:  # the reader is gone
                return False
        return not left

    def close(self) -> None:
        if self._own is not None:
            os.close(self._own)
            self._own = None
        super().close()


def _lost(n: int) -> logging.LogRecord:
    said = "%d log lines are missing here because their reader was too slow"
    return logging.makeLogRecord({"name": "log", "levelname": "WARNING", "msg": said, "args": (n,)})


def _own_description(stream: TextIO) -> int | None:
    """Open the pipe or terminal behind `stream` again, for writes that do not wait; None if that is
    impossible.

    The new descriptor has its own flags, so other programs' writes still wait. `poll` would not do: it
    promises room for only PIPE_BUF bytes in a pipe, or for one byte in a terminal.
    """
    if sys.platform != "linux":
        return None
    try:
        descriptor = stream.fileno()
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError):  # no file, or not ours to open
        pass
    return None


def configure_logging(level: LogLevel, *, as_json: bool = False) -> None:
    """Send this process's log to stderr, one line per event with time, role and level."""
    handler = UnblockedHandler(sys.stderr)
    text = TextFormatter("%(asctime)s %(name)s %(levelname)s: %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonFormatter() if as_json else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Their messages repeat ours.
    for chatty in ("uvicorn", "httpx", "httpcore", "asyncio"):
        logging.getLogger(chatty).setLevel("WARNING")
    # Its errors reach us as exceptions too. A connection that ends during a ping, as after a machine's sleep,
    # is logged with a traceback.
    logging.getLogger("websockets").setLevel("CRITICAL")
