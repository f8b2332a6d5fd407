"""Logging for the programs: one logger per role, a handler only in `__main__`, everything to stderr."""

import logging
import sys
from typing import Literal

LogLevel = Literal["debug", "info", "warning", "error"]


def configure_logging(level: LogLevel) -> None:
    """Send this process's log to stderr, one line per event with time, role and level."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s: %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # These say what our own lines already say.
    for chatty in ("uvicorn", "httpx", "httpcore", "websockets", "asyncio"):
        logging.getLogger(chatty).setLevel("WARNING")
