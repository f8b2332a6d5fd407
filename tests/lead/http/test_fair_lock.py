import asyncio

import pytest

from lead.http.fair_lock import FairLock
from lead.tokenizer.fair_queue import Client

ONE, TWO = Client("one"), Client("two")


@pytest.fixture
def turns():
    return FairLock()


def waiting(turns, client, order, name):
    async def take():
        async with turns.hold(client):
            order.append(name)

    return asyncio.ensure_future(take())


async def test_clients_take_turns(turns):
    order = []
    async with turns.hold(ONE):
        tasks = [waiting(turns, ONE, order, name) for name in "abc"]
        tasks.append(waiting(turns, TWO, order, "x"))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == ["a", "x", "b", "c"]


@pytest.mark.parametrize("has_turn", [False, True], ids=["it waits", "it has the turn, but has not run"])
async def test_who_leaves_is_passed_over(turns, has_turn):
    order = []
    async with turns.hold(ONE):
        first, second = waiting(turns, ONE, order, "a"), waiting(turns, ONE, order, "b")
        await asyncio.sleep(0)
        if not has_turn:
            first.cancel()
    first.cancel()
    await second
    assert order == ["b"]


async def test_a_turn_that_fails_is_over(turns):
    with pytest.raises(ValueError, match="x"):
        async with turns.hold(ONE):
            raise ValueError("x")
    async with turns.hold(TWO):
        pass
