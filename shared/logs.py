"""Logging for the programs: one logger per role, a handler set up only by `main`, everything to stderr."""

import json
import logging
import select
import sys
from datetime import UTC, datetime
from typing import Literal, TextIO

from shared.terminal import sanitize

LogLevel = Literal["debug", "info", "warning", "error"]

_PATIENCE_MILLISECONDS = 100
"""How long a line waits for a reader that is behind: some lines' worth of an answer."""


class TextFormatter(logging.Formatter):
    """A line per event, safe for a terminal: messages may quote peers, files and models.

    Further lines of a message or a trace are indented: a quoted text cannot pose as another event.
    """

    def format(self, record: logging.LogRecord) -> str:
        return sanitize(super().format(record)).rstrip("\n").replace("\n", "\n    ")


class JsonFormatter(logging.Formatter):
    """One JSON object per line, in ASCII. `extra={"fields": {...}}` adds keys, for programs that read it."""

    def format(self, record: logging.LogRecord) -> str:
        item = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            item["trace"] = self.formatException(record.exc_info)
        return json.dumps(item, default=str)


class UnblockedHandler(logging.StreamHandler[TextIO]):
    """Writes to a pipe or terminal as long as somebody reads it.

    Once it is full (`lead 2>&1 | less`, Ctrl-S), a write would block the program: lines are lost instead, and
    counted for whoever reads on.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._n_lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        if not self._is_writable():
            self._n_lost += 1
            return
        if self._n_lost:
            told = {"name": "log", "levelname": "WARNING", "msg": "lines lost here, as nobody read them: %d"}
            super().emit(logging.makeLogRecord(told | {"args": (self._n_lost,)}))
            self._n_lost = 0
        super().emit(record)

    def _is_writable(self) -> bool:
        if sys.platform == "win32":
            return True
        poll = select.poll()
        try:
            poll.register(self.stream, select.POLLOUT)
        except (OSError, ValueError):  # no file, or closed
            return True
        return bool(poll.poll(0 if self._n_lost else _PATIENCE_MILLISECONDS))


def configure_logging(level: LogLevel, *, as_json: bool = False) -> None:
    """Send this process's log to stderr, one line per event with time, role and level."""
    handler = UnblockedHandler(sys.stderr)
    text = TextFormatter("%(asctime)s %(name)s %(levelname)s: %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonFormatter() if as_json else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Their messages repeat ours.
    for chatty in ("uvicorn", "httpx", "httpcore", "websockets", "asyncio"):
        logging.getLogger(chatty).setLevel("WARNING")
