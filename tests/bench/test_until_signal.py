import asyncio
import os
import signal

import pytest

from bench.until_signal import until_signal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_work_without_an_error(number):
    os_signals = []

    async def work():
        os.kill(os.getpid(), number)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            os_signals.append(number)
            raise

    await until_signal(work())
    assert os_signals == [number]


async def test_work_that_ends_by_itself_is_awaited():
    done = []

    async def work():
        done.append(await asyncio.sleep(0, "done"))

    await until_signal(work())
    assert done == ["done"]


async def test_an_error_of_the_work_is_raised():
    async def work():
        raise OSError("refused")

    with pytest.raises(OSError, match="refused"):
        await until_signal(work())
