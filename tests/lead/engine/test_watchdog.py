import asyncio

import pytest

from lead.engine import watchdog as module
from lead.engine.watchdog import Watchdog


class Sleeps:
    """Instead of asyncio.sleep: counts the seconds, and lets `during` happen in them."""

    def __init__(self):
        self.seconds = 0.0
        self.during = lambda: None

    async def __call__(self, seconds):
        self.seconds += seconds
        self.during()


@pytest.fixture
def sleeps(monkeypatch):
    sleeps = Sleeps()
    monkeypatch.setattr(module.asyncio, "sleep", sleeps)
    return sleeps


async def test_silence_is_noticed_after_the_time(sleeps):
    dog = Watchdog(5.0)
    dog.heard()
    await dog.wait_for_silence()
    assert sleeps.seconds == pytest.approx(5.0)


async def test_every_sign_of_life_counts_anew(sleeps):
    dog = Watchdog(5.0)
    dog.heard()
    sleeps.during = lambda: dog.heard() if sleeps.seconds < 100 else None
    await dog.wait_for_silence()
    assert sleeps.seconds == pytest.approx(105.0, abs=1.0)


async def test_the_first_sign_of_life_may_take_a_minute(sleeps):
    await Watchdog(0.5).wait_for_silence()
    assert sleeps.seconds == pytest.approx(60.0)


async def test_a_timeout_of_0_never_ends():
    waiting = asyncio.ensure_future(Watchdog(0.0).wait_for_silence())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
