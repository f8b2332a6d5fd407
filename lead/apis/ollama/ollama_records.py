"""Records for Ollama's clients, and the field `keep_alive`, shared by leads and routers."""

import datetime as dt
import hashlib
import math
import re
from typing import Any, Final

from shared.errors import RequestError

VERSION: Final = "0.12.0"
"""The version of Ollama that the API imitates: clients require a minimum version."""
FOREVER: Final = "2318-01-01T00:00:00Z"
"""The expiry of a model that stays in memory: now plus Ollama's longest duration, 292 years."""
_LONGEST_SECONDS: Final = 292 * 365 * 86400.0
LATEST: Final = ":latest"

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(rf"(\d+\.?\d*|\.\d+)({'|'.join(sorted(_UNITS, key=len, reverse=True))})")
_DURATION = re.compile(rf"-?(?:{_PART.pattern})+")


def tagged(name: str) -> str:
    """Return a name as Ollama writes it: without spaces, and with a tag."""
    name = "-".join(name.split())
    return name if ":" in name else name + LATEST


def time_text(unix_time: float | None = None) -> str:
    """Return a time as RFC 3339 text, which Go parses; None: now."""
    time = dt.datetime.now(dt.UTC) if unix_time is None else dt.datetime.fromtimestamp(unix_time, dt.UTC)
    return time.isoformat().replace("+00:00", "Z")


def model_details(architecture: str, n_params: str, file_type: str) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "gguf",
        "family": architecture,
        "families": [architecture],
        "parameter_size": n_params,
        "quantization_level": file_type,
    }


def model_record(
    name: str, size: int, modified_at: str, identity: object, details: dict[str, Any]
) -> dict[str, Any]:
    """Return a model's record in `/api/tags`.

    The digest is computed from `identity`, not from the file, which would take a minute.
    """
    digest = hashlib.sha256(repr(identity).encode()).hexdigest()
    name = tagged(name)
    same = {"name": name, "model": name}
    return same | {"modified_at": modified_at, "size": size, "digest": digest, "details": details}


def running_record(record: dict[str, Any], expires_at: str, n_ctx: int | None) -> dict[str, Any]:
    """Return a model's record in `/api/ps`, made of its `record` from `model_record`."""
    return record | {"expires_at": expires_at, "size_vram": 0, "context_length": n_ctx}


def keep_seconds(value: float | str | None) -> float | None:
    """Convert `keep_alive` to seconds; infinity: keep the model for ever; None: no value was given.

    `value`: seconds, or a duration in Go's notation (5m, 1h30m). Negative values mean for ever, and so does
    292 years or more. Raises RequestError for other texts.
    """
    if value is None or value == "":
        return None
    seconds = value if isinstance(value, int | float) else _parse(value)
    if math.isnan(seconds):
        raise _unreadable()
    return float(seconds) if 0 <= seconds < _LONGEST_SECONDS else math.inf


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
    return RequestError("keep_alive: must be seconds or a duration such as 5m or 1h30m", "keep_alive")
