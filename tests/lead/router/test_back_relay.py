import asyncio
import contextlib

import pytest
from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from shared.protocol import PROTOCOL_VERSION, Hello, VocabularyId
from tests.lead.router.fakes import FakeProcess


def model_app(name):
    """A model that sends its name first, and then repeats each message."""
    app = FastAPI()

    @app.websocket("/v1/speculation")
    async def follow(socket: WebSocket):
        await socket.accept()
        with contextlib.suppress(WebSocketDisconnect):
            await socket.receive_text()
            await socket.send_text(name)
            while True:
                await socket.send_text(await socket.receive_text())

    return app


@pytest.fixture
async def house(routed):
    """Models a and b, each with a vocabulary of its name. Both fit."""
    names = iter("ab")

    def make():
        name = next(names)
        return FakeProcess(model_app(name), vocabulary=name)

    return await routed("ab", room=2, make=make)


def hello(vocabulary="other"):
    known = VocabularyId(fingerprint=vocabulary, n_tokens=10, model="v")
    return Hello(protocol=PROTOCOL_VERSION, name="desk", vocabulary=known, n_ctx=64, n_sequences=1)


@contextlib.asynccontextmanager
async def back(house, vocabulary="other"):
    async with connect(f"ws://127.0.0.1:{house.port}/v1/speculation") as socket:
        await socket.send(hello(vocabulary).model_dump_json())
        yield socket


async def load(house, name):
    async with house.host.use(name):
        pass


async def received(socket):
    async with asyncio.timeout(20):
        return await socket.recv()


async def code_of_close(socket):
    with pytest.raises(ConnectionClosed) as closed:
        await received(socket)
    return closed.value.rcvd.code


async def test_messages_pass_in_both_directions_once_there_is_a_model(house):
    async with back(house) as socket:
        await load(house, "a")
        assert await received(socket) == "a"
        await socket.send("x")
        assert await received(socket) == "x"


async def test_a_back_gets_the_model_of_its_vocabulary(house):
    await load(house, "a")
    await load(house, "b")
    async with back(house, "a") as socket:
        assert await received(socket) == "a"


async def test_another_back_gets_a_model_that_has_none(house):
    await load(house, "a")
    await load(house, "b")
    async with back(house) as first, back(house) as second:
        assert {await received(first), await received(second)} == {"a", "b"}


async def test_a_back_is_sent_away_when_a_model_of_its_vocabulary_awakes(house):
    await load(house, "a")
    async with back(house, "b") as socket:
        assert await received(socket) == "a"
        await load(house, "b")
        assert await code_of_close(socket) == 1012
    async with back(house, "b") as socket:
        assert await received(socket) == "b"


async def test_a_back_stays_with_the_model_of_its_vocabulary(house):
    await load(house, "a")
    async with back(house, "a") as socket:
        await received(socket)
        await load(house, "b")
        await socket.send("still here")
        assert await received(socket) == "still here"


async def test_a_back_is_sent_away_when_its_model_ends(house):
    await load(house, "a")
    async with back(house) as socket:
        await received(socket)
        await house["a"].die()
        assert await code_of_close(socket) == 1012


async def test_what_is_no_hello_is_refused(house):
    await load(house, "a")
    async with connect(f"ws://127.0.0.1:{house.port}/v1/speculation") as socket:
        await socket.send('{"type": "nothing"}')
        assert await code_of_close(socket) == 1008


async def test_a_back_that_leaves_while_it_waits_is_forgotten(house):
    async with back(house):
        pass
    await load(house, "a")
    assert not house.services.relay._links
