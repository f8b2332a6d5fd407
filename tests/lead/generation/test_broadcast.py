import asyncio

from lead.generation.broadcast import Broadcast


async def test_everyone_who_waits_is_woken():
    broadcast = Broadcast()
    waiting = [asyncio.ensure_future(broadcast.next_change().wait()) for _ in range(3)]
    broadcast.notify()
    async with asyncio.timeout(5):
        assert await asyncio.gather(*waiting) == [True] * 3


async def test_a_change_before_the_wait_is_not_lost():
    broadcast = Broadcast()
    change = broadcast.next_change()
    broadcast.notify()
    assert change.is_set()


async def test_the_next_change_is_another_one():
    broadcast = Broadcast()
    broadcast.notify()
    assert not broadcast.next_change().is_set()
