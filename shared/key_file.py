"""The key that a program sends to a lead: from an option or a file."""

import re
from pathlib import Path

from pydantic import SecretStr

from shared.errors import ConfigError

_KEY = re.compile(r"[!-~]+")
"""The characters that an HTTP header can carry without quoting."""


def is_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


def read_key(given: SecretStr | None, file: Path | None) -> str | None:
    """Return `given`, or the key in `file`, or None. Raises ConfigError without quoting the key."""
    if given is not None:
        key, place = given.get_secret_value().strip(), "the key"
    elif file is not None:
        key, place = _first_line(file), f"the first line of {file}"
    else:
        return None
    if not is_key(key):
        raise ConfigError(f"{place} is empty or has characters that are not allowed in a key")
    return key


def _first_line(file: Path) -> str:
    try:
        return next(iter(file.read_text("utf-8").split("\n")), "").strip()
    except OSError as error:
        raise ConfigError(f"cannot read the key in {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read the key in {file}: the file is not text") from error
