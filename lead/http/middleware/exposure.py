"""Whether an address lets other machines in."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`; in doubt, not."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
