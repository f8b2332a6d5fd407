import asyncio
import contextlib

import pytest

from lead.http.body_budget import BodyBudget, Turns
from lead.tokenizer.fair_queue import Client
from shared.errors import QueueFullError

ONE, TWO = Client("one"), Client("two")


class Bodies:
    """Bodies that arrive in a budget of 100 bytes."""

    def __init__(self):
        self._budget = BodyBudget(100)
        self._stack = contextlib.ExitStack()

    async def arriving(self, client, n_bytes):
        """A body of which so much has arrived, and what becomes of it: a task that waits for the rest."""
        body = self._stack.enter_context(self._budget.hold(client))

        async def wait():
            async with body.waiting():
                await asyncio.Event().wait()

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        body.grow(n_bytes)
        return task


async def refused(*tasks):
    """Which of the tasks have ended with a refusal."""
    for _ in range(4):
        await asyncio.sleep(0)
    ended = [task.done() for task in tasks]
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(each, QueueFullError) for each in results] == ended
    return ended


async def test_bodies_that_fit_are_left_alone():
    bodies = Bodies()
    tasks = [await bodies.arriving(ONE, 50) for _ in range(2)]
    assert await refused(*tasks) == [False, False]


async def test_beyond_the_budget_the_newest_body_of_the_client_with_most_is_refused():
    bodies = Bodies()
    tasks = [await bodies.arriving(ONE, 30), await bodies.arriving(ONE, 30), await bodies.arriving(TWO, 50)]
    assert await refused(*tasks) == [False, True, False]


async def test_many_addresses_of_a_key_count_together():
    bodies = Bodies()
    tasks = [await bodies.arriving(Client("one", address), 20) for address in "abc"]
    tasks.append(await bodies.arriving(TWO, 50))
    assert (await refused(*tasks))[-1] is False


async def test_a_body_that_has_ended_does_not_count():
    budget = BodyBudget(100)
    for _ in range(3):
        with budget.hold(ONE) as body:
            async with body.waiting():
                body.grow(100)


async def test_waiting_has_a_time_limit():
    with BodyBudget(100).hold(ONE) as body, pytest.raises(TimeoutError):
        async with body.waiting(0.0):
            await asyncio.Event().wait()


@pytest.fixture
def turns():
    return Turns()


def waiting(turns, client, order, name):
    async def take():
        async with turns.turn(client):
            order.append(name)

    return asyncio.ensure_future(take())


async def test_clients_take_turns(turns):
    order = []
    async with turns.turn(ONE):
        tasks = [waiting(turns, ONE, order, name) for name in "abc"]
        tasks.append(waiting(turns, TWO, order, "x"))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == ["a", "x", "b", "c"]


async def test_who_waits_no_more_is_passed_over(turns):
    order = []
    async with turns.turn(ONE):
        first, second = waiting(turns, ONE, order, "a"), waiting(turns, ONE, order, "b")
        await asyncio.sleep(0)
        first.cancel()
    await second
    assert order == ["b"]


async def test_a_turn_that_comes_to_one_who_leaves_goes_to_the_next(turns):
    order = []
    async with turns.turn(ONE):
        first, second = waiting(turns, ONE, order, "a"), waiting(turns, ONE, order, "b")
        await asyncio.sleep(0)
    first.cancel()  # it has the turn, but has not run since
    await second
    assert order == ["b"]


async def test_a_turn_that_fails_is_over(turns):
    with pytest.raises(ValueError, match="x"):
        async with turns.turn(ONE):
            raise ValueError("x")
    async with turns.turn(TWO):
        pass
