"""Logging for the programs: one logger per role, a handler set up only by `main`, everything to stderr."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

from shared.terminal import sanitize

LogLevel = Literal["debug", "info", "warning", "error"]


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


def configure_logging(level: LogLevel, *, as_json: bool = False) -> None:
    """Send this process's log to stderr, one line per event with time, role and level."""
    handler = logging.StreamHandler(sys.stderr)
    text = TextFormatter("%(asctime)s %(name)s %(levelname)s: %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonFormatter() if as_json else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Their messages repeat ours.
    for chatty in ("uvicorn", "httpx", "httpcore", "websockets", "asyncio"):
        logging.getLogger(chatty).setLevel("WARNING")
