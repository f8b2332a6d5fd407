"""The web UI: its files, their paths, and the routes that serve them.

The files are public. The data that the page shows is requested with a key.
"""

import gzip
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response

router = APIRouter(include_in_schema=False)

_MEDIA_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}


class File(NamedTuple):
    content: bytes
    media_type: str


def _read(folder: Traversable, path: str) -> Iterator[tuple[str, File]]:
    for item in folder.iterdir():
        name = item.name
        if name == "vendor":
            yield from _read(item, f"{path}vendor/")
        elif media_type := _MEDIA_TYPES.get(name[name.rfind(".") :]):
            yield "/" if name == "index.html" else path + name, File(item.read_bytes(), media_type)


FILES: Final[Mapping[str, File]] = dict(_read(files(__name__), "/page/"))
"""The files by path: `/`, `/page/NAME`, and `/page/vendor/NAME` for third-party files (vendor/fetch.sh)."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
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
    "Vary": "Accept-Encoding",
}
"""Headers of the page: it can load from and call only this lead, and no other page can embed it."""


@cache
def _compressed(path: str) -> bytes:
    return gzip.compress(FILES[path].content, mtime=0)


def _sending(path: str) -> Callable[[Request], Awaitable[Response]]:
    async def send(request: Request) -> Response:
        content, media_type = FILES[path]
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(content, media_type=media_type, headers=HEADERS)
        headers = HEADERS | {"Content-Encoding": "gzip"}
        return Response(_compressed(path), media_type=media_type, headers=headers)

    return send


for _path in FILES:
    router.get(_path)(_sending(_path))
