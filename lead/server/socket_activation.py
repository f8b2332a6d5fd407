"""The listening socket that systemd has opened for the lead, and keeps when the lead ends (sd_listen_fds(3)).

Whoever connects while no lead runs waits in the socket's queue for the next one.
"""

import os
import socket
from collections.abc import MutableMapping

from shared.errors import ConfigError

_FIRST_DESCRIPTOR = 3
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def activated_socket(environment: MutableMapping[str, str], pid: int) -> socket.socket | None:
    """The socket for the process `pid`; None if it was started in another way.

    Child processes no longer find it in the environment. Raises ConfigError if there is not exactly one.
    """
    if environment.get("LISTEN_PID") != str(pid):
        return None
    n_sockets = environment.get("LISTEN_FDS", "0")
    for name in _VARIABLES:
        environment.pop(name, None)
    if n_sockets != "1":
        raise ConfigError(f"systemd gave {n_sockets} sockets, but the lead takes one: a single ListenStream=")
    os.set_inheritable(_FIRST_DESCRIPTOR, False)
    try:
        listener = socket.socket(fileno=_FIRST_DESCRIPTOR)
        is_listening = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ConfigError(f"descriptor {_FIRST_DESCRIPTOR} of systemd is no socket: {error}") from error
    if listener.family not in {socket.AF_INET, socket.AF_INET6} or not is_listening:
        raise ConfigError(
            "the socket of systemd does not listen on a port: ListenStream=ADDRESS:PORT, Accept=no"
        )
    return listener
