"""A lead behind the lead's own HTTP server, on a real port."""

import asyncio
import contextlib
import json
import socket

import uvicorn

from lead.http.middleware.timeouts import ServerConfig
from lead.server.draining import DrainingServer
from lead.server.listening import listen
from lead.settings.lead_settings import LeadSettings
from lead.settings.limits import RequestLimits
from lead.settings.security import SecurityOptions
from shared.protocol import PROTOCOL_VERSION, Hello

ASK = {"messages": [{"role": "user", "content": "Hi"}]}


HANDSHAKE = (
    b"GET /v1/speculation HTTP/1.1\r\nHost: lead\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def hello(lead, **changes):
    """The first message of a back to `lead`."""
    fields = {
        "protocol": PROTOCOL_VERSION,
        "name": "desk",
        "vocabulary": lead.vocabulary.identify(),
        "n_ctx": 64,
        "n_sequences": 2,
    }
    return Hello(**fields | changes)


async def hang_up(writer):
    writer.close()
    await writer.wait_closed()


class PromptServer(uvicorn.Server):
    """Ends in milliseconds because nothing waits for it. uvicorn takes up to two tenths of a second."""

    async def main_loop(self):
        await self.on_tick(0)
        while not self.should_exit:  # noqa: ASYNC110 - a flag that others set
            await asyncio.sleep(0.002)

    async def shutdown(self, sockets=None):  # noqa: ARG002 - as uvicorn's
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        for _ in range(20):
            await asyncio.sleep(0.001)
            if not (self.server_state.connections or self.server_state.tasks):
                break


@contextlib.asynccontextmanager
async def app_served(app, limits=None, n_descriptors=None, *, send_buffer=None, **options):
    """uvicorn with the lead's own protocols around any application: (port, server). It is ended by force."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if send_buffer:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        limits = limits or RequestLimits()
        config = ServerConfig(app, limits, n_descriptors, lifespan="off", log_config=None, **options)
        server = PromptServer(config)
        serving = asyncio.ensure_future(server._serve([listener]))
        try:
            async with asyncio.timeout(60):
                yield listener.getsockname()[1], server
        finally:
            server.should_exit = server.force_exit = True
            await serving


class Served:
    """A running server. `shut_down` does what a signal does."""

    def __init__(self, lead, *, limits=None, tls=(None, None), **options):
        self._lead = lead
        self._listener = listen("127.0.0.1", 0)
        self.port = self._listener.getsockname()[1]
        security = SecurityOptions(ssl_cert_file=tls[0], ssl_key_file=tls[1])
        self.server = DrainingServer(
            lead.app,
            LeadSettings(limits=limits or RequestLimits(), security=security, **options),
            lead.sequences,
            on_drain=self._begin,
            on_drained=self._end_help,
        )
        self.draining = asyncio.Event()
        self.backs_at_the_end = []
        self.serving = asyncio.ensure_future(self.server.serve(sockets=[self._listener]))

    async def post(self, **fields):
        """A connection on which a chat request has been sent."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        body = json.dumps(ASK | fields).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: lead\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        return reader, writer

    def shut_down(self):
        self.server.on_signal()

    def _begin(self):
        self._lead.backs.disconnect_http()
        self.draining.set()

    async def _end_help(self):
        self.backs_at_the_end = [back.name for back in self._lead.backs]


@contextlib.asynccontextmanager
async def serving(lead):
    """A function that starts servers around `lead`; they end with the context."""
    async with contextlib.AsyncExitStack() as stack:

        def start(drain_seconds=20.0, **options):
            served = Served(lead, drain_seconds=drain_seconds, **options)

            async def end():
                for _ in range(3):
                    served.shut_down()
                await served.serving

            stack.push_async_callback(end)
            return served

        yield start
