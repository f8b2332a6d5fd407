"""The web UI: its files, their paths, and the routes that send them.

They are public; the data that the page shows is requested with a key.
"""

from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import Final, NamedTuple

from fastapi import APIRouter
from fastapi.responses import Response

router = APIRouter(include_in_schema=False)

_MEDIA_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class File(NamedTuple):
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

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    # Model output and names of backs can never become HTML: the sinks that parse it are closed.
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""The page may load and call only what this lead serves, and may not be framed."""


def _sending(file: File) -> Callable[[], Awaitable[Response]]:
    async def send() -> Response:
        return Response(file.content, media_type=file.media_type, headers=HEADERS)

    return send


for _path, _file in FILES.items():
    router.get(_path)(_sending(_file))
