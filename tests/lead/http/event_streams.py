"""Asking an application without a network, and reading an event stream."""

import json

import httpx


def client_of(app, **options):
    """A client of this application; what its routes raise is answered as a real server does."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://lead", **options)


def events(response):
    """The JSON objects of a stream, and the string "[DONE]" where it stands."""
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def text(chunks):
    """The text of a streamed chat answer."""
    choices = [choice for chunk in chunks if isinstance(chunk, dict) for choice in chunk.get("choices", [])]
    return "".join(choice["delta"].get("content") or "" for choice in choices)
