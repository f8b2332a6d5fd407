"""The files of the page that a lead shows to browsers, and the paths they have.

They hold nothing secret and are for everybody; what they show is asked for with a key.
"""

from collections.abc import Mapping
from importlib.resources import files
from typing import Final, NamedTuple

_MEDIA_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class File(NamedTuple):
    """What is sent for a path."""

    content: bytes
    media_type: str


def _read() -> dict[str, File]:
    found = {}
    for item in files(__name__).iterdir():
        name = item.name
        if media_type := _MEDIA_TYPES.get(name[name.rfind(".") :]):
            path = "/" if name == "index.html" else f"/page/{name}"
            found[path] = File(item.read_bytes(), media_type)
    return found


FILES: Final[Mapping[str, File]] = _read()
"""By path: `/`, and `/page/NAME` for what it needs."""
