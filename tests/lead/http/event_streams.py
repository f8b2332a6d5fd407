"""Tools to ask an application without a network, read an event stream, and let a client leave."""

import asyncio

import httpx
from httpx_sse import EventSource
from starlette.requests import Request

from shared.answer_stream import AnswerStream


def client_of(app, **options):
    """A client of this application. Errors of its routes are answered as by a real server."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://lead", **options)


def events(response):
    """The JSON objects of a stream, and the string "[DONE]" at its position."""
    stream = AnswerStream(EventSource(response))
    return ["[DONE]" if stream.done else event for event in stream]


def text(chunks):
    """The text of a streamed chat answer."""
    choices = [choice for chunk in chunks if isinstance(chunk, dict) for choice in chunk.get("choices", [])]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


class Connection:
    """The receiving side of a request whose client may leave."""

    def __init__(self):
        self.gone = asyncio.Event()
        self.request = Request({"type": "http"}, self.receive)

    async def receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}
