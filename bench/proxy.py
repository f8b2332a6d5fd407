"""A TCP proxy with a delay: simulates a longer round trip on one machine.

    python -m bench.proxy --to 127.0.0.1:5555 --rtt-ms 20

Bytes arrive in order, half a round trip after they were sent, each way; bandwidth is not limited.
"""

import argparse
import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from bench.until_signal import until_signal
from shared import cpus
from shared.logs import configure_logging

log = logging.getLogger("bench.proxy")

_CHUNK = 1 << 16
_QUEUED = 1024
"""Maximum number of chunks in flight; then the sender has to wait, as with a full socket."""


class Reader(Protocol):
    """The receiving end of asyncio's streams."""

    async def read(self, n: int, /) -> bytes:
        """At most `n` bytes; none at the end."""


class Writer(Protocol):
    """The sending end of asyncio's streams."""

    def write(self, data: bytes, /) -> None:
        """Queue bytes."""

    async def drain(self) -> None:
        """Wait until there is room."""

    def close(self) -> None:
        """Send what is queued, then end."""


async def carry(
    reader: Reader,
    writer: Writer,
    delay: Callable[[], float],
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Copy from `reader` to `writer` in order, each chunk `delay()` seconds after it arrived, or later."""
    on_their_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUED)

    async def depart() -> None:
        data = b"-"
        while data:
            try:
                data = await reader.read(_CHUNK)
            except OSError:  # a connection that breaks has ended, too
                data = b""
            await on_their_way.put((clock() + delay(), data))

    departing = asyncio.ensure_future(depart())
    try:
        while True:
            due, data = await on_their_way.get()
            if (remaining := due - clock()) > 0:
                await sleep(remaining)
            if not data:
                break
            writer.write(data)
            await writer.drain()
    finally:
        departing.cancel()
        writer.close()


async def serve(host: str, port: int, delay: float) -> None:
    """Forward connections until cancelled."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(host, port)
            clock = asyncio.get_running_loop().time
            await asyncio.gather(
                quietly(carry(reader, far_writer, lambda: delay, clock, asyncio.sleep)),
                quietly(carry(far_reader, writer, lambda: delay, clock, asyncio.sleep)),
            )
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    log.info("listening on port %d", server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()


async def quietly(carrying: Awaitable[None]) -> None:
    """A broken connection ends in both directions; that is not logged."""
    with contextlib.suppress(OSError):
        await carrying


def main() -> None:
    """Forward connections until a signal."""
    parser = argparse.ArgumentParser(prog="bench.proxy", description=__doc__)
    parser.add_argument("--to", required=True, help="host:port")
    parser.add_argument("--rtt-ms", type=float, required=True)
    parser.add_argument("--cpus")
    arguments = parser.parse_args()
    configure_logging("info")
    if arguments.cpus:
        cpus.pin(cpus.parse_cpus(arguments.cpus))
    host, _, port = arguments.to.rpartition(":")
    asyncio.run(until_signal(serve(host, int(port), arguments.rtt_ms / 2000)))


if __name__ == "__main__":
    main()
