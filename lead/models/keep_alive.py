"""Ollama's `keep_alive`: how long a model stays in memory after a request."""

import math
import re
from typing import Final

from shared.errors import RequestError

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(rf"(\d+\.?\d*|\.\d+)({'|'.join(sorted(_UNITS, key=len, reverse=True))})")
_DURATION = re.compile(rf"-?(?:{_PART.pattern})+")


def keep_seconds(value: float | str | None) -> float | None:
    """Seconds, infinity for ever, None for no change; from seconds or a duration of Go, as in 5m or 1h30m.

    Negative values mean for ever. Raises RequestError.
    """
    if value is None or value == "":
        return None
    seconds = value if isinstance(value, int | float) else _parse(value)
    if math.isnan(seconds):
        raise _unreadable()
    return math.inf if seconds < 0 else float(seconds)


def _parse(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        if not _DURATION.fullmatch(text):
            raise _unreadable() from None
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
        seconds = -seconds if text.startswith("-") else seconds
    return seconds


def _unreadable() -> RequestError:
    return RequestError("keep_alive: seconds, or a duration as in 5m or 1h30m", "keep_alive")
