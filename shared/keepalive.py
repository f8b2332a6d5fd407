"""Notices that the machine at the other end of a connection is gone, although nothing closed it.

For sockets that native code opens, and serves for as long as nobody closes them.
"""

import contextlib
import os
import socket
import threading
import time

SECONDS = 30
"""After so long without an answer from the other machine the system closes the connection."""
_N_PROBES = 3
_INTERVAL = SECONDS // (2 * _N_PROBES)
_PAUSE_SECONDS = 0.05
_OPTIONS = {
    "TCP_KEEPIDLE": SECONDS - _N_PROBES * _INTERVAL,  # Linux
    "TCP_KEEPALIVE": SECONDS - _N_PROBES * _INTERVAL,  # macOS
    "TCP_KEEPINTVL": _INTERVAL,
    "TCP_KEEPCNT": _N_PROBES,
    "TCP_USER_TIMEOUT": 1000 * SECONDS,  # Linux: what was sent, and is not acknowledged
}
"""Those that the system does not have are left out."""


def watch_port(port: int) -> None:
    """Wait, in a thread, until this process listens there; then watch all connections that it accepts."""
    threading.Thread(target=_watch_port, args=(port,), name="keepalive", daemon=True).start()


def watch(listener: socket.socket) -> None:
    """Close connections that this socket accepts from now on when their other end is gone."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # what it accepts inherits all of this
    for name, value in _OPTIONS.items():
        if option := getattr(socket, name, None):
            listener.setsockopt(socket.IPPROTO_TCP, option, value)


def _watch_port(port: int) -> None:
    while (listener := _own_listener(port)) is None:
        time.sleep(_PAUSE_SECONDS)
    with listener:
        watch(listener)


def _own_listener(port: int) -> socket.socket | None:
    """The socket on which this process listens there, under a descriptor of its own."""
    for descriptor in os.listdir("/dev/fd"):  # noqa: PTH208 - numbers, not paths
        with contextlib.suppress(OSError):  # no socket, or closed meanwhile
            found = socket.socket(fileno=int(descriptor))
            try:
                if _listens_at(found, port):
                    return found.dup()
            finally:
                found.detach()
    return None


def _listens_at(found: socket.socket, port: int) -> bool:
    listens = found.family == socket.AF_INET and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    return bool(listens) and found.getsockname()[1] == port
