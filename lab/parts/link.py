"""The network between a back and the lead: a TCP proxy whose quality can be changed while it runs.

Bytes arrive in order, half a round trip after they were sent, in each direction.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable
from typing import Self

_ANY_SIZE = 1 << 16
_QUEUED = 1024
"""The maximum number of chunks in flight; then the sender must wait, as with a full socket."""


def _none() -> float:
    return 0.0


class Link:
    """Forwards connections from its own port to `host:port`, as a context manager.

    The attributes may be changed at any time; they apply to bytes that arrive from then on, in both
    directions.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._writers: set[asyncio.StreamWriter] = set()
        self._forwarding: set[asyncio.Future[None]] = set()
        self._server: asyncio.Server | None = None
        self._flows = asyncio.Event()
        self._flows.set()
        self.delay: Callable[[], float] = _none
        """Returns the delay of a chunk in seconds."""
        self.bytes_per_second = math.inf
        self.max_bytes = _ANY_SIZE
        """The number of bytes that arrive together."""

    def restore(self) -> None:
        """Restore a perfect network; bytes held back by `stop_flow` arrive late, as TCP sends them again."""
        self.worsen()
        self._flows.set()

    def worsen(
        self,
        delay: Callable[[], float] = _none,
        bytes_per_second: float = math.inf,
        max_bytes: int = _ANY_SIZE,
    ) -> None:
        """Set the attributes; attributes that are not given get values of a perfect connection."""
        self.delay, self.bytes_per_second, self.max_bytes = delay, bytes_per_second, max_bytes

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server
        self._server.close()
        self.cut()
        for forwarding in self._forwarding:
            forwarding.cancel()
        await asyncio.gather(*self._forwarding, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """The URL at which a back reaches the lead through this link."""
        assert self._server
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Reset all connections; bytes in transit are lost."""
        for writer in self._writers:
            writer.transport.abort()

    def stop_flow(self) -> None:
        """Stop delivering bytes until `restore`, without closing connections."""
        self._flows.clear()

    async def pace(self, n_bytes: int) -> None:
        """Wait for the transmission time of `n_bytes`."""
        await self._flows.wait()
        if not math.isinf(self.bytes_per_second):
            await asyncio.sleep(n_bytes / self.bytes_per_second)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        forwarding = asyncio.ensure_future(self._forward(reader, writer))
        self._forwarding.add(forwarding)
        # Streams log the CancelledError of a handler.
        await asyncio.gather(forwarding, return_exceptions=True)
        self._forwarding.discard(forwarding)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._open(writer):
            with contextlib.suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
                async with self._open(far_writer):
                    await asyncio.gather(self.carry(reader, far_writer), self.carry(far_reader, writer))

    @contextlib.asynccontextmanager
    async def _open(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        """Let `cut` reset the connection within this context; close it at the end."""
        self._writers.add(writer)
        try:
            yield
        finally:
            self._writers.discard(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy chunks in order, each at least `delay` seconds after it arrived, until one side closes."""
        clock = asyncio.get_running_loop().time
        on_their_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUED)

        async def depart() -> None:
            data = b"-"
            while data:
                try:
                    data = await reader.read(self.max_bytes)
                except OSError:  # a connection that breaks has ended, too
                    data = b""
                await self.pace(len(data))
                await on_their_way.put((clock() + self.delay(), data))

        departing = asyncio.ensure_future(depart())
        try:
            with contextlib.suppress(OSError):  # a broken connection ends in both directions
                while True:
                    due, data = await on_their_way.get()
                    await asyncio.sleep(max(0.0, due - clock()))
                    if not data:
                        break
                    writer.write(data)
                    await writer.drain()
        finally:
            departing.cancel()
            writer.close()
