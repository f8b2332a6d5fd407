"""The listening socket: opened here, passed by systemd, or taken over from a running lead.

Replacing a running lead loses no connection. The old lead waits at a Unix socket that only the lead's user
can open. The new lead (`lead --takeover`) gets a copy of the listening socket there, loads its model, begins
to accept connections, and tells the old lead. From then on the old lead accepts no connections, and it ends
after its last answer. Both have the same socket, so every client that connects is in its queue.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import warnings
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_runtime_path

from lead.settings.lead_settings import LeadSettings
from lead.settings.security import EXPOSED
from shared.errors import ConfigError

log = logging.getLogger("lead")

_READY = b"r"
_BACKLOG = 4
_TAKE_SECONDS = 10.0
"""The time that the old lead may take to hand over its socket, or to stop accepting."""
_PAUSE_SECONDS = 0.1
"""The pause before another attempt to let in a successor for which there was no descriptor."""
_MAX_PATH_BYTES = 100
"""The longest path of a Unix socket that all systems allow."""
_FIRST_DESCRIPTOR = 3
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def listen(host: str, port: int, advice: str = "Try another --port") -> socket.socket:
    """Return a listening socket; on `::` it accepts IPv4, too, if the system supports that.

    Raises ConfigError, with `advice`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((host, port), family=family, backlog=256, dualstack_ipv6=both)
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        reason = "another program, perhaps a lead, uses it" if is_taken else error.strerror
        raise ConfigError(f"cannot listen on {host} port {port}: {reason}. {advice}") from error


def activated_socket(environment: MutableMapping[str, str], pid: int) -> socket.socket | None:
    """Return the socket that systemd has passed to the process `pid` (sd_listen_fds(3)); None: there is none.

    While no lead runs, new connections wait in the socket's queue for the next lead. systemd's variables are
    removed from the environment, which child processes inherit. Raises ConfigError if there is more than one
    socket.
    """
    if environment.get("LISTEN_PID") != str(pid):
        return None
    n_sockets = environment.get("LISTEN_FDS", "0")
    for name in _VARIABLES:
        environment.pop(name, None)
    if n_sockets != "1":
        raise ConfigError(f"systemd gave {n_sockets} sockets, but the lead needs exactly one (ListenStream=)")
    os.set_inheritable(_FIRST_DESCRIPTOR, False)
    try:
        listener = socket.socket(fileno=_FIRST_DESCRIPTOR)
        is_listening = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ConfigError(f"descriptor {_FIRST_DESCRIPTOR} of systemd is not a socket: {error}") from error
    if listener.family not in {socket.AF_INET, socket.AF_INET6} or not is_listening:
        raise ConfigError(
            "the socket of systemd does not listen on a port. Set ListenStream=ADDRESS:PORT and Accept=no"
        )
    return listener


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a lead. is_inherited: the socket comes from systemd, or from the lead that is
    replaced.
    """

    listener: socket.socket
    is_inherited: bool = False
    predecessor: "Predecessor | None" = None

    @property
    def host(self) -> str:
        return str(self.listener.getsockname()[0])

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def open_address(settings: LeadSettings) -> Address:
    """Return the socket passed by systemd, the socket of the lead to replace, or a new one.

    Raises ConfigError, also if a lead with these settings must not listen there.
    """
    if activated := activated_socket(os.environ, os.getpid()):
        address = Address(activated, is_inherited=True)
    elif settings.takeover:
        predecessor = Predecessor(takeover_path(settings.host, settings.port))
        address = Address(predecessor.listener, is_inherited=True, predecessor=predecessor)
    else:
        address = Address(listen(settings.host, settings.port))
    host = address.host
    if not settings.security.may_listen_on(host):  # systemd or another lead has chosen it
        address.listener.close()
        raise ConfigError(f"the lead would listen on {host}: {EXPOSED}")
    return address


def takeover_path(host: str, port: int) -> Path:
    """Return the path of the Unix socket at which the lead with this address accepts a takeover."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without XDG_RUNTIME_DIR, as in containers, the fallback will do
        folder = user_runtime_path("llama-duo")
    return folder / f"lead-{host}-{port}.socket"


class Predecessor:
    """The lead to be replaced, as the new lead sees it."""

    def __init__(self, path: Path) -> None:
        """Get a copy of the listening socket of the lead at `path`; raises ConfigError."""
        self._old = socket.socket(socket.AF_UNIX)
        self._old.settimeout(_TAKE_SECONDS)
        try:
            self._old.connect(str(path))
            _, descriptors, _, _ = socket.recv_fds(self._old, 1, 1)
            os.set_inheritable(descriptors[0], False)  # else the engine would inherit it
            self.listener = socket.socket(fileno=descriptors[0])
        except TimeoutError as error:
            self._old.close()
            raise ConfigError(
                "--takeover: the lead on this --port does not hand over the port. Another lead is already "
                "taking over, or the lead hangs. If it hangs, stop it, and start without --takeover"
            ) from error
        except (OSError, IndexError) as error:
            self._old.close()
            raise ConfigError(
                f"--takeover: no lead of this user runs on this --port ({path}: {error}). "
                "Start without --takeover"
            ) from error

    async def replace(self) -> None:
        """Tell the old lead that this one accepts connections; return when the old lead has stopped
        accepting.
        """
        self._old.setblocking(False)
        loop = asyncio.get_running_loop()
        with self._old, contextlib.suppress(OSError, TimeoutError):  # the old one may just have died
            async with asyncio.timeout(_TAKE_SECONDS):
                await loop.sock_sendall(self._old, _READY)
                await loop.sock_recv(self._old, 1)


async def hand_over(path: Path, listener: socket.socket, stop_accepting: Callable[[], None]) -> None:
    """Run the old lead's part of a takeover; return when another process has taken over `listener`, or none
    ever can.

    stop_accepting: called before the new lead is notified.
    """
    meeting = _listen(path)
    if meeting is None:
        return
    loop = asyncio.get_running_loop()
    try:
        while True:
            try:
                successor, _ = await loop.sock_accept(meeting)
            except OSError:  # no descriptors: there may be some later
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            with successor, contextlib.suppress(OSError):
                successor.setblocking(False)
                socket.send_fds(successor, [_READY], [listener.fileno()])
                log.info("another lead is taking over this address")
                if await loop.sock_recv(successor, 1) == _READY:
                    log.info("another lead has taken over. This lead stops after its last answer")
                    stop_accepting()
                    _remove(path)
                    return
                log.warning("the new lead ended before it took over. This lead continues")
    except asyncio.CancelledError:
        _remove(path)
        raise
    finally:
        meeting.close()


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _listen(path: Path) -> socket.socket | None:
    """Return a socket that listens at `path`; None if that is impossible here."""
    if not hasattr(socket, "send_fds") or len(os.fsencode(path)) > _MAX_PATH_BYTES:
        return None
    meeting = socket.socket(socket.AF_UNIX)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # of a lead that was killed: the address is ours now
        meeting.bind(str(path))
        path.chmod(0o600)
        meeting.listen(_BACKLOG)
    except OSError as error:
        log.debug("--takeover of this lead will not work: %s", error)
        meeting.close()
        return None
    meeting.setblocking(False)
    return meeting
