"""A router on a real port, with fake models."""

import contextlib

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

from lead.http.application import application
from lead.router import router_api
from lead.router.back_relay import BackRelay
from lead.router.forwarding import Forwarder
from lead.router.router_api import RouterServices
from lead.settings.keys import Keyring
from tests.lead.router.fakes import FakeProcess, running_house
from tests.lead.serving import app_served
from tests.shared.model_files.hub_server import cache, server  # noqa: F401 - fixtures


def echo():
    """A model that returns the request. `stream` answers in the parts of `app.state`."""
    app = FastAPI()
    app.state.parts = [b"data: 1\n\n", b"data: 2\n\n"]

    @app.api_route("/{path:path}", methods=["GET", "POST", "PUT", "DELETE"])
    async def answer(request: Request):
        body = await request.body()
        if b'"stream": true' in body or b'"stream":true' in body:
            return StreamingResponse(parts(), media_type="text/event-stream")
        return JSONResponse(
            {
                "path": request.url.path,
                "query": str(request.url.query),
                "method": request.method,
                "body": body.decode(),
                "headers": dict(request.headers),
            },
            status_code=201,
            headers={"x-model": "yes"},
        )

    async def parts():
        for part in app.state.parts:
            yield part
            if hook := getattr(app.state, "after_part", None):
                await hook()

    return app


class RoutedHouse:
    def __init__(self, house, app, client):
        self.house, self.app, self.client = house, app, client
        self.host = house.host
        self.services: RouterServices = app.state.services

    def __getitem__(self, name):
        return self.house[name]

    async def ask(self, model="a", path="/v1/chat/completions", **fields):
        return await self.client.post(path, json={"model": model} | fields)


@pytest.fixture
async def routed():
    """Starts a router: `await routed("ab", …)` with the arguments of `House`."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(*arguments, keys=None, **options):
            options = {"make": lambda: FakeProcess(echo())} | options
            house = await stack.enter_async_context(running_house(*arguments, **options))
            relay = BackRelay(house.host)
            house.host.on_change = relay.note_change
            reloads = []
            app = application((router_api.router, router_api.everything_else), keys=keys or Keyring())
            forwarder = Forwarder(house.host)
            stack.push_async_callback(forwarder.close)

            async def reload():
                reloads.append(1)

            app.state.services = RouterServices(house.host, forwarder, relay, 0, reload)
            port, _ = await stack.enter_async_context(app_served(app))
            client = await stack.enter_async_context(
                httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30)
            )
            found = RoutedHouse(house, app, client)
            found.reloads = reloads
            found.port = port
            return found

        yield start
