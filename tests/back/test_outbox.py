"""Which drafts are sent, and when."""

import asyncio
import contextlib

import pytest

from back.outbox import Outbox
from shared.protocol import Draft, Welcome, parse_back_message


@contextlib.asynccontextmanager
async def sending(clock=lambda: 0.0, **limits):
    """An outbox, and a queue of what it sends."""
    sent = asyncio.Queue()
    outbox = Outbox(clock)

    async def send(frame):
        sent.put_nowait(parse_back_message(frame))

    task = asyncio.ensure_future(outbox.send_all(send, Welcome(back="id", name="b", **limits)))
    yield outbox, sent
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def draft_of(*tokens, sequence="s", **more):
    return Draft(sequence=sequence, base=2, tokens=tokens, **more)


async def test_a_draft_is_sent():
    async with sending() as (outbox, sent):
        outbox.post(draft_of(7))
        assert await sent.get() == draft_of(7)


async def test_only_the_newest_draft_of_a_sequence_is_sent():
    async with sending() as (outbox, sent):
        for n in range(1, 4):
            outbox.post(draft_of(*[7] * n))
        outbox.post(draft_of(8, sequence="t"))
        assert [await sent.get() for _ in range(2)] == [draft_of(7, 7, 7), draft_of(8, sequence="t")]


async def test_a_draft_may_be_posted_by_another_thread():
    async with sending() as (outbox, sent):
        await asyncio.to_thread(outbox.post, draft_of(7))
        assert await sent.get() == draft_of(7)


async def test_a_draft_posted_after_the_end_of_the_event_loop_is_dropped():
    outbox = Outbox(lambda: 0.0)
    outbox._loop = asyncio.new_event_loop()
    outbox._loop.close()
    outbox.post(draft_of(7))


async def test_what_was_cleared_is_not_sent():
    async with sending() as (outbox, sent):
        outbox.post(draft_of(7))
        asyncio.get_running_loop().call_soon(outbox.clear)
        outbox.post(draft_of(8, sequence="t"))
        assert await sent.get() == draft_of(8, sequence="t")


async def test_drafts_are_cut_to_the_longest_that_the_lead_accepts():
    async with sending(max_draft=2) as (outbox, sent):
        outbox.post(draft_of(7, 8, 9, confidences=[0.9, 0.8, 0.7]))
        assert await sent.get() == draft_of(7, 8, confidences=[0.9, 0.8])


async def test_beyond_the_rate_limit_only_the_newest_draft_is_sent():
    now = 0.0
    async with sending(lambda: now, max_drafts_per_second=1) as (outbox, sent):
        outbox.post(draft_of(1))
        assert await sent.get() == draft_of(1)
        now = 1.1  # a little before the next one is allowed
        outbox.post(draft_of(2))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await sent.get()
        outbox.post(draft_of(3))
        await asyncio.sleep(0)  # the outbox has it before more time passes
        now = 2.0
        assert await sent.get() == draft_of(3)
