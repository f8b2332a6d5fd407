"""A house behind the lead's own HTTP server, on a real port."""

import asyncio
import contextlib
import json

from lead.bounds import Bounds
from lead.server import DrainingServer, listen

ASK = {"messages": [{"role": "user", "content": "Hi"}]}


class Served:
    """A running server; `shut_down` is what a signal does."""

    def __init__(self, house, drain_seconds, bounds=None, **options):
        self._listener = listen("127.0.0.1", 0)
        self.port = self._listener.getsockname()[1]
        self.server = DrainingServer(
            house.app, drain_seconds, house.sequences, house.backs.dismiss, bounds or Bounds(), **options
        )
        self.serving = asyncio.ensure_future(self.server.serve(sockets=[self._listener]))

    async def post(self, **fields):
        """A connection on which a chat request has been sent."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        body = json.dumps(ASK | fields).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: lead\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        return reader, writer

    def shut_down(self):
        self.server._on_signal()


@contextlib.asynccontextmanager
async def serving(house):
    """A function that starts servers around `house`; they end with the context."""
    async with contextlib.AsyncExitStack() as stack:

        def start(drain_seconds=20.0, **options):
            served = Served(house, drain_seconds, **options)

            async def end():
                served.server.should_exit = served.server.force_exit = True
                await served.serving

            stack.push_async_callback(end)
            return served

        yield start
