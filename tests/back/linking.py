"""A link, and a real WebSocket server that plays the lead and sends valid and invalid messages."""

import asyncio
import contextlib
import random
import socket
import time

from websockets.asyncio.server import serve

from back.link import LeadLink
from shared.protocol import PROTOCOL_VERSION, Hello, Open, VocabularyId, Welcome
from shared.sampling.parameters import SamplingParameters

HELLO = Hello(
    protocol=PROTOCOL_VERSION,
    name="b",
    vocabulary=VocabularyId(fingerprint="f", n_tokens=9, model="m"),
    n_ctx=64,
    n_sequences=2,
)
WELCOME = Welcome(back="id", name="b")
OPEN = Open(sequence="s", sampling=SamplingParameters(seed=1), tokens=[1, 2])


class NoDelays(random.Random):
    """Makes each delay between two attempts to connect zero, and calls `on_delay` for each."""

    def __init__(self, on_delay=lambda: None):
        super().__init__(1)
        self._on_delay = on_delay

    def uniform(self, _low, _high):
        self._on_delay()
        return 0.0


class Recorder:
    """Records messages in place of a worker."""

    n_unread = 0

    def __init__(self):
        self.received = asyncio.Queue()

    def on_message(self, _lead, message):
        self.received.put_nowait(message or "disconnected")


@contextlib.asynccontextmanager
async def linked(*handlers, key=None, ping_seconds=20.0, clock=time.monotonic, listener=None, **options):
    """A link to a lead that handles each connection with the next of `handlers`, later ones with the last.

    `options`: of the lead's server.
    """
    connections = []

    async def handler(connection):
        handle = handlers[min(len(connections), len(handlers) - 1)]
        connections.append(connection)
        await handle(connection)

    async with serve(handler, "127.0.0.1", 0, **options) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"ws://127.0.0.1:{port}/v1/speculation"
        link = LeadLink(url, HELLO, NoDelays(), key, ping_seconds=ping_seconds, clock=clock)
        listener = listener or Recorder()
        running = asyncio.ensure_future(link.run(listener))
        try:
            yield link, listener, running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def saying(*messages, then=None):
    """A handler that answers hello with `messages`, and goes on with `then`."""

    async def handle(connection):
        await connection.recv()
        for message in messages:
            await connection.send(message if isinstance(message, str) else message.model_dump_json())
        await (then(connection) if then else connection.wait_closed())

    return handle


async def hang_up(connection):
    await connection.close(1012, "restarting")


def answering(status, body):
    """A function that refuses the WebSocket handshake, as a lead may."""

    def process_request(connection, _request):
        return connection.respond(status, body)

    return process_request


@contextlib.contextmanager
def unused_port():
    """A port on which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


async def dial_three_times(url, tls=None):
    """Try to connect where there is no lead."""
    attempts = asyncio.Semaphore(0)
    link = LeadLink(url, HELLO, NoDelays(attempts.release), tls=tls)
    running = asyncio.ensure_future(link.run(Recorder()))
    for _ in range(3):
        await attempts.acquire()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
