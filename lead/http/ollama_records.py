"""What leads and routers tell Ollama's clients alike, and `keep_alive`, which both read."""

import math
import re
from typing import Final

from shared.errors import RequestError

VERSION: Final = "0.12.0"
"""Whose API this is: clients ask for at least some version."""
FOREVER: Final = "2318-01-01T00:00:00Z"
"""When a model leaves memory that stays: Ollama adds its longest duration, 292 years."""
LATEST: Final = ":latest"

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(rf"(\d+\.?\d*|\.\d+)({'|'.join(sorted(_UNITS, key=len, reverse=True))})")
_DURATION = re.compile(rf"-?(?:{_PART.pattern})+")


def tagged(name: str) -> str:
    """Ollama's names have no spaces, and a tag."""
    name = "-".join(name.split())
    return name if ":" in name else name + LATEST


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
