"""One process takes the listening socket of another."""

import asyncio
import contextlib
import socket

import pytest

from lead.server import takeover
from lead.server.takeover import Inheritance, wait_for_heir
from shared.errors import ConfigError


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def path(tmp_path):
    """Where the owner of `listener` waits."""
    return tmp_path / "s"


@contextlib.asynccontextmanager
async def owning(path, listener, stop_accepting=lambda: None):
    owner = asyncio.ensure_future(wait_for_heir(path, listener, stop_accepting))
    while not path.exists():  # noqa: ASYNC110 - a file has no event
        await asyncio.sleep(0)
    yield owner
    owner.cancel()
    await asyncio.gather(owner, return_exceptions=True)


async def test_the_heir_accepts_connections_that_came_before_it_was_ready(path, listener):
    async with owning(path, listener) as owner:
        heir = await asyncio.to_thread(Inheritance, path)
        with socket.create_connection(listener.getsockname()) as client, heir.listener:
            await heir.take()
            await owner
            listener.close()
            accepted, address = heir.listener.accept()
            accepted.close()
            assert address == client.getsockname()


async def test_the_owner_stops_accepting_before_the_heir_goes_on(path, listener):
    stopped = []
    async with owning(path, listener, lambda: stopped.append(path.exists())):
        heir = await asyncio.to_thread(Inheritance, path)
        with heir.listener:
            assert stopped == []
            await heir.take()
    assert stopped == [True]
    assert not path.exists()


async def test_an_heir_that_dies_changes_nothing(path, listener, caplog):
    async with owning(path, listener) as owner:
        dead = await asyncio.to_thread(Inheritance, path)
        dead.listener.close()
        dead._old.close()
        heir = await asyncio.to_thread(Inheritance, path)
        with heir.listener:
            await heir.take()
        await owner
    assert "this one goes on" in caplog.text


async def test_without_an_owner_there_is_nothing_to_take(path):
    with pytest.raises(ConfigError, match="--takeover: no lead of this user can be replaced"):
        Inheritance(path)


async def test_a_second_heir_learns_that_there_is_one(path, listener, monkeypatch):
    monkeypatch.setattr(takeover, "_TAKE_SECONDS", 0.05)
    async with owning(path, listener):
        first = await asyncio.to_thread(Inheritance, path)
        with first.listener, pytest.raises(ConfigError, match="already about to take over"):
            await asyncio.to_thread(Inheritance, path)
        first._old.close()


async def test_at_its_end_an_owner_leaves_nothing_behind(path, listener):
    async with owning(path, listener):
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()


async def test_what_a_killed_owner_left_is_replaced(path, listener):
    path.touch()
    owner = asyncio.ensure_future(wait_for_heir(path, listener, lambda: None))
    while not path.is_socket():  # noqa: ASYNC110 - a file has no event
        await asyncio.sleep(0)
    owner.cancel()
    await asyncio.gather(owner, return_exceptions=True)
