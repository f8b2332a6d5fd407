"""The names that a lead goes by. A page that has pointed its own name here (DNS rebinding) uses another."""

import ipaddress
import re
import socket
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from lead.http.errors import http_error

_HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::\d*)?")
"""RFC 9112, section 3.2: a name or an address, and perhaps a port."""


class HostNames:
    """The names under which a lead may be asked; addresses always are: nobody can point those elsewhere."""

    def __init__(self, names: Iterable[str]) -> None:
        """A name, `*.name` for all below it, or `*` for any."""
        wanted = {name.lower() for name in names}
        self._names = {name for name in wanted if not name.startswith("*")}
        self._endings = tuple(name[1:] for name in wanted if name.startswith("*"))

    def allows(self, host: str) -> bool:
        """Whether a request with this Host header is for us. Browsers always send one: without it, it is."""
        match = _HOST.fullmatch(host.strip().lower())
        if match is None:
            return False
        name = match[1]
        return not host or _is_address(name) or name in self._names or name.endswith(self._endings)


def own_names(bound: str) -> set[str]:
    """What this machine is called, and `bound`, the address or name that was listened on."""
    machine = socket.gethostname()
    return {"localhost", "*.localhost", bound, machine, f"{machine}.local"}


class Hosts:
    """Middleware that refuses requests for others. (Starlette's answers in plain text and has no hint.)"""

    def __init__(self, app: ASGIApp, names: HostNames) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            host = Headers(scope=scope).get("host", "")
            if not self._names.allows(host):
                message = f"this server does not go by the name {host!r}: allow it with --allowed-hosts"
                await http_error(403, message, "permission_error")(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
