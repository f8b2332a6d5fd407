"""The URL of a lead, or of another server, as a setting."""

from typing import Literal
from urllib.parse import urlsplit, urlunsplit

Scheme = Literal["http", "https"]

_HOW_TO_WRITE = "write an address such as 192.168.1.20:5555 or http://192.168.1.20:5555"


def server_url(value: str) -> str:
    """Return a URL without a trailing `/v1`, which the base URL of OpenAI clients has; raises ValueError.

    Without a scheme, as in host:port, it is an HTTP URL.
    """
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        sound = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and " " not in value
        (parts.hostname or "").encode("idna")
    except ValueError:  # of the host or the port
        raise ValueError(_HOW_TO_WRITE) from None
    if not sound or parts.query or parts.fragment:
        raise ValueError(_HOW_TO_WRITE)
    # urlsplit has made the scheme lower-case, as what is made of this expects it.
    return urlunsplit(parts).rstrip("/").removesuffix("/v1").rstrip("/")


def split_address(address: str) -> tuple[str, int]:
    """Split host:port; raises ValueError. llama.cpp supports only IPv4."""
    host, _, port = address.rpartition(":")
    if not host or ":" in host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{address!r} is not host:port. Write a name or an IPv4 address, and a port")
    return host, int(port)
