"""Host names: names of this machine, and names that requests may use."""

import ipaddress
import re
import socket
from collections.abc import Iterable

_HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::\d*)?")
"""RFC 9112, section 3.2: a name or an address, and an optional port."""


class AllowedHosts:
    """The allowed names in Host headers. IP addresses are always allowed: DNS cannot redirect them."""

    def __init__(self, names: Iterable[str]) -> None:
        """names: each is a name, `*.name` for all names below it, or `*` for any name."""
        wanted = {name.lower() for name in names}
        self._names = {name for name in wanted if not name.startswith("*")}
        self._suffixes = tuple(name[1:] for name in wanted if name.startswith("*"))

    def allows(self, host: str) -> bool:
        """Return whether to serve a request with this Host header; True if the header is missing, because
        every browser sends it.
        """
        match = _HOST.fullmatch(host.strip().lower())
        if match is None:
            return False
        name = match[1]
        address = name.removeprefix("[").removesuffix("]")
        return not host or _is_address(address) or name in self._names or name.endswith(self._suffixes)


def machine_names(bound: str) -> set[str]:
    """Return the names of this machine, and `bound`, the address or name that the server listens on."""
    machine = socket.gethostname()
    return {"localhost", "*.localhost", bound, machine, f"{machine}.local"}


def listening_host(host: str) -> str:
    """Return the host to listen on, without the brackets of IPv6 addresses in URLs. Raises ValueError for a
    Unix socket.
    """
    if "/" in host or host.endswith(".sock"):
        raise ValueError("Unix sockets are not supported. Use a host name or an IP address")
    return host.removeprefix("[").removesuffix("]")


def is_loopback(host: str) -> bool:
    """Return whether a server that listens on `host` can be reached only from this machine; False
    if unsure.
    """
    return host.lower() == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
