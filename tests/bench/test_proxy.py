import asyncio

import pytest

from bench.proxy import carry

DELAY = 0.01


class Clock:
    """A loop's clock that only sleeping moves."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.now += seconds
        await asyncio.sleep(0)


class Source:
    """Chunks that are there at once; then the end, or an error."""

    def __init__(self, chunks, error=None):
        self._chunks = list(chunks)
        self._error = error

    async def read(self, _n):
        if not self._chunks:
            if self._error:
                raise self._error
            return b""
        return self._chunks.pop(0)


class Sink:
    def __init__(self, clock):
        self._clock = clock
        self.got = []
        self.closed_at = None

    def write(self, data):
        self.got.append((self._clock.now, data))

    async def drain(self):
        await asyncio.sleep(0)

    def close(self):
        self.closed_at = self._clock.now


async def carried(chunks, error=None, delay=DELAY):
    clock = Clock()
    sink = Sink(clock)
    async with asyncio.timeout(60):
        await carry(Source(chunks, error), sink, lambda: delay, clock, clock.sleep)
    return sink


async def test_bytes_arrive_in_order_after_the_delay():
    sink = await carried([b"a", b"b", b"c"])
    assert [data for _, data in sink.got] == [b"a", b"b", b"c"]
    assert all(at >= DELAY for at, _ in sink.got)


async def test_chunks_that_leave_together_do_not_wait_for_each_other():
    """A hundred chunks arrive after one delay, not after a hundred."""
    sink = await carried([b"x"] * 100)
    assert sink.got[-1][0] == pytest.approx(DELAY)


async def test_the_end_is_passed_on_last():
    sink = await carried([b"a"])
    assert sink.got
    assert sink.closed_at == pytest.approx(DELAY)


async def test_a_connection_that_breaks_has_ended():
    sink = await carried([b"a"], error=ConnectionResetError())
    assert [data for _, data in sink.got] == [b"a"]
    assert sink.closed_at is not None


async def test_no_delay_is_no_sleep():
    sink = await carried([b"a"], delay=0.0)
    assert sink.got == [(0.0, b"a")]
