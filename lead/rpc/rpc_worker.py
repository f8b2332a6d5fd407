"""`lead rpc-worker`: this machine computes layers of the model of a lead on another machine."""

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from lead.server.listening import listen
from lead.settings.host_names import is_loopback
from shared import cpus
from shared.errors import ConfigError
from shared.exits import exiting_in_words
from shared.logs import configure_logging
from shared.settings.base import ProgramSettings
from shared.settings.model_options import MAX_THREADS
from shared.settings.options import CommaList, CpuList, OptionError

log = logging.getLogger("rpc-worker")

_LOST_SECONDS = 30
"""After this time without an answer from the other machine the system closes the connection."""
_N_PROBES = 3
_INTERVAL = _LOST_SECONDS // (2 * _N_PROBES)
_PAUSE_S = 0.05
_OPTIONS = {
    "TCP_KEEPIDLE": _LOST_SECONDS - _N_PROBES * _INTERVAL,  # Linux
    "TCP_KEEPALIVE": _LOST_SECONDS - _N_PROBES * _INTERVAL,  # macOS
    "TCP_KEEPINTVL": _INTERVAL,
    "TCP_KEEPCNT": _N_PROBES,
    "TCP_USER_TIMEOUT": 1000 * _LOST_SECONDS,  # Linux: what was sent, and is not acknowledged
}
"""Socket options; options that the system does not have are left out."""


class RpcWorkerSettings(ProgramSettings):
    """Compute layers of a model for `lead --rpc host:port` on another machine, with llama.cpp's RPC server.

    The server has no keys and no encryption, and a client can make it run code. Use a loopback address and a
    tunnel (docs/security.md). A worker serves one lead at a time.

        lead rpc-worker                                   the CPU, for a lead here or through a tunnel
        lead rpc-worker --device CUDA0,CUDA1 --cache ~/.cache/rpc
        lead rpc-worker --host 10.8.0.2 --insecure        an address in a closed network
    """

    program = "lead rpc-worker"
    prefix = "LEAD_RPC_WORKER_"

    device: CommaList = Field(
        ("CPU",),
        description="comma-separated devices to offer, with llama.cpp's names (CPU, CUDA0, Metal, …)",
    )
    host: str = Field(
        "127.0.0.1", description="IPv4 address to listen on. Addresses other than loopback need --insecure"
    )
    port: int = Field(50052, ge=1, le=65535, description="port to listen on")
    insecure: bool = Field(False, description="allow a --host that other machines can reach")
    cpus: CpuList | None = Field(None, description="CPU cores to run on, such as 0-7,16")
    threads: int = Field(
        0, ge=0, le=MAX_THREADS, description="number of CPU threads; 0: all physical cores of --cpus"
    )
    cache: Path | None = Field(
        None,
        description="folder for weights, so that a restarted lead need not send them again",
    )

    @model_validator(mode="after")
    def _check_devices(self) -> Self:
        if not self.device or len(self.device) != len(set(self.device)):
            raise OptionError("device", "must name at least one device, and each only once")
        return self

    @model_validator(mode="after")
    def _check_address(self) -> Self:
        if not (is_loopback(self.host) or self.insecure):
            raise OptionError(
                "host",
                "other machines could make this worker run code. Use a loopback address and a "
                "tunnel, or --insecure on a closed network",
            )
        return self


def main(arguments: Sequence[str]) -> None:
    """Run the worker until a signal. Exits with status 1 and a message on failure."""
    settings = RpcWorkerSettings.from_command_line(arguments)
    configure_logging("info")
    with exiting_in_words(settings.program):
        serve(settings)


def serve(settings: RpcWorkerSettings) -> None:
    """Serve; returns only by raising ConfigError."""
    from shared.llama import devices  # noqa: PLC0415 - the options are read without llama.cpp, too
    from shared.rpc import rpc_backend  # noqa: PLC0415 - as above

    rpc_backend.require()
    if settings.cpus:
        cpus.pin(cpus.parse_cpus(settings.cpus))
    if settings.cache:
        _make_folder(settings.cache)
    offered = devices.named(settings.device, "--device")
    host = _ipv4(settings.host)
    address = f"{host}:{settings.port}"
    listen(host, settings.port).close()  # llama.cpp does not say why it cannot
    # llama.cpp never returns to Python, which handles signals only between its own instructions.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    # llama.cpp does not notice that a lead's machine is gone: it would serve only this lead for ever.
    _watch_connections(settings.port)
    log.info("computing on %s for `lead --rpc %s`", ",".join(settings.device), address)
    rpc_backend.serve(address, offered, settings.threads or cpus.n_physical(), settings.cache)
    raise ConfigError(f"cannot listen on {address}")


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--cache {path}: {error.strerror}") from error


def _ipv4(host: str) -> str:
    """Return the IPv4 address of a host, because llama.cpp's RPC cannot listen on names or IPv6; raises
    ConfigError.
    """
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise ConfigError(f"--host {host} has no IPv4 address. llama.cpp's RPC needs IPv4") from error


# Leads whose machine is gone, although nothing has closed their connection


def _watch_connections(port: int) -> None:
    """Wait, in a thread, until this process listens at `port`; then watch all connections that it accepts."""
    threading.Thread(target=_watch_port, args=(port,), name="keepalive", daemon=True).start()


def _watch(listener: socket.socket) -> None:
    """Have the system close each connection that is accepted from now on when its other end is gone."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # what it accepts inherits all of this
    for name, value in _OPTIONS.items():
        if option := getattr(socket, name, None):
            listener.setsockopt(socket.IPPROTO_TCP, option, value)


def _watch_port(port: int) -> None:
    while (listener := _own_listener(port)) is None:
        time.sleep(_PAUSE_S)
    with listener:
        _watch(listener)


def _own_listener(port: int) -> socket.socket | None:
    """Return the socket at which this process listens on `port`, with a descriptor of its own."""
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
