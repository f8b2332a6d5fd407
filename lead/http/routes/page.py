"""`GET /`: the web UI (chat, backs, speculation)."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter
from fastapi.responses import Response

from lead.http.page import FILES, File

router = APIRouter(include_in_schema=False)

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
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
