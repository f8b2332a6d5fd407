"""The files of the web UI and their paths.

They are public; the data that the page shows is requested with a key.
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
    """A file as it is sent."""

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
"""By path: `/`, and `/page/NAME`."""
