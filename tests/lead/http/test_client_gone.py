"""Work is cancelled for a client that leaves, and for no other reason."""

import asyncio

import pytest

from lead.http.client_gone import ClientGoneError, cancel, cancel_on_disconnect
from tests.lead.http.event_streams import Connection

pytestmark = pytest.mark.both_loops


@pytest.fixture
async def connection():
    return Connection()


class Work:
    """Work that waits for `ready`, then has a result. Its cleanup takes several steps of the event loop."""

    def __init__(self, error=None):
        self.ready = asyncio.Event()
        self.error = error
        self.begun = asyncio.Event()
        self.is_clean = False

    async def run(self):
        self.begun.set()
        try:
            await self.ready.wait()
        finally:
            await several_steps()
            self.is_clean = True
            if self.error:
                raise self.error
        return 7


async def several_steps():
    for _ in range(5):
        await asyncio.sleep(0)


async def stubborn():
    """Work that ends with a result although it is cancelled."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await several_steps()
    return 7


def start(connection, work):
    """The task of a request that does the work."""
    return asyncio.ensure_future(cancel_on_disconnect(connection.request, work))


async def outcome(task):
    """The result of a task, or the type of its error."""
    (found,) = await asyncio.gather(task, return_exceptions=True)
    return type(found) if isinstance(found, BaseException) else found


async def test_work_that_ends_first_gives_its_result(connection):
    work = Work()
    work.ready.set()
    assert await cancel_on_disconnect(connection.request, work.run()) == 7


async def test_work_that_fails_raises_its_error(connection):
    work = Work(ValueError())
    work.ready.set()
    assert await outcome(start(connection, work.run())) is ValueError


def end_the_loop(*_):
    """Cancel all tasks, including the task that waits for the client to leave."""
    for each in asyncio.all_tasks() - {asyncio.current_task()}:
        each.cancel()


@pytest.mark.parametrize(
    ("end", "raised"),
    [
        (lambda connection, _: connection.gone.set(), ClientGoneError),
        (lambda _, task: task.cancel(), asyncio.CancelledError),
        (end_the_loop, asyncio.CancelledError),
    ],
    ids=["the client leaves", "the server ends", "the event loop ends"],
)
async def test_work_is_cancelled_and_cleans_up_when(connection, end, raised):
    work = Work()
    task = start(connection, work.run())
    await work.begun.wait()
    end(connection, task)
    assert await outcome(task) is raised
    assert work.is_clean


async def test_work_is_cancelled_if_the_client_has_left_before(connection):
    connection.gone.set()
    work = Work()
    assert await outcome(start(connection, work.run())) is ClientGoneError
    assert work.is_clean


async def test_work_that_need_not_wait_is_done_even_if_the_client_has_left(connection):
    connection.gone.set()

    async def work():
        return 7

    assert await outcome(start(connection, work())) == 7


async def test_a_client_that_leaves_after_the_work_cancels_nothing(connection):
    async def serve():
        await cancel_on_disconnect(connection.request, asyncio.sleep(0))
        connection.gone.set()
        await several_steps()
        return 8

    assert await outcome(asyncio.ensure_future(serve())) == 8


async def test_a_client_that_leaves_while_the_work_ends_cancels_nothing_that_follows(connection):
    async def serve():
        connection.gone.set()
        found = await cancel_on_disconnect(connection.request, asyncio.sleep(0, 7))
        await several_steps()
        return found

    assert await outcome(asyncio.ensure_future(serve())) == 7


async def test_after_a_client_has_left_the_task_can_go_on(connection):
    async def serve():
        with pytest.raises(ClientGoneError):
            await cancel_on_disconnect(connection.request, Work().run())
        await several_steps()
        return asyncio.current_task().cancelling()

    connection.gone.set()
    assert await outcome(asyncio.ensure_future(serve())) == 0


async def test_an_error_of_the_clean_up_is_raised(connection):
    connection.gone.set()
    assert await outcome(start(connection, Work(ValueError()).run())) is ValueError


async def test_work_that_ends_in_spite_of_it_gives_its_result(connection):
    async def serve():
        found = await cancel_on_disconnect(connection.request, stubborn())
        await several_steps()
        return found, asyncio.current_task().cancelling()

    connection.gone.set()
    assert await outcome(asyncio.ensure_future(serve())) == (7, 0)


async def test_a_timeout_of_the_work_at_the_same_time_hides_no_client_that_leaves(connection):
    async def work():
        async with asyncio.timeout(None) as limit:
            connection.gone.set()
            await asyncio.sleep(0)
            limit.reschedule(0.0)
            await asyncio.Event().wait()

    assert await outcome(start(connection, work())) is ClientGoneError


@pytest.mark.parametrize("n_steps", range(4))
@pytest.mark.parametrize("is_server_first", [False, True])
async def test_a_server_that_ends_about_when_the_client_leaves_is_not_ignored(
    connection, n_steps, is_server_first
):
    """The request ends as cancelled. Otherwise its server would believe that it goes on."""
    work = Work()
    task = start(connection, work.run())
    await work.begun.wait()
    first, then = connection.gone.set, task.cancel
    if is_server_first:
        first, then = then, first
    first()
    for _ in range(n_steps):
        await asyncio.sleep(0)
    then()
    assert await outcome(task) is asyncio.CancelledError
    assert task.cancelled()


async def test_nothing_waits_for_the_client_any_more(connection):
    before = asyncio.all_tasks()
    await cancel_on_disconnect(connection.request, asyncio.sleep(0))
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_cancelled_tasks_have_ended():
    works = [Work(), Work(ValueError())]
    tasks = [asyncio.ensure_future(each.run()) for each in works]
    await works[1].begun.wait()
    await cancel(*tasks)
    assert all(each.is_clean for each in works)


@pytest.mark.parametrize("n_steps", range(1, 4))
async def test_who_cancels_tasks_and_is_cancelled_too_lets_them_clean_up(n_steps):
    work = Work()
    task = asyncio.ensure_future(work.run())
    await work.begun.wait()
    cancelling = asyncio.ensure_future(cancel(task))
    for _ in range(n_steps):
        await asyncio.sleep(0)
    cancelling.cancel()
    assert await outcome(cancelling) is asyncio.CancelledError
    assert work.is_clean
