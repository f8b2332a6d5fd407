"""Children under asyncio."""

import asyncio

import psutil
import pytest

from shared.keeper import Child, run_child
from tests.real.processes import wait_for_end


@pytest.mark.parametrize(
    ("command", "outcome"),
    [("exit 3", "status 3"), ("kill -SEGV $$", "signal SIGSEGV"), ("kill -40 $$", "signal 40")],
)
async def test_how_a_child_has_ended_is_said_whatever_the_signal(command, outcome):
    child = Child(["sh", "-c", command], stop_seconds=10.0)
    await child.ended
    assert child.outcome == outcome


async def test_a_child_answers_a_question():
    done = await run_child(["sh", "-c", "cat; echo why >&2; exit 3"], b"a question", 60.0)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"a question", b"why\n")


async def test_a_child_that_does_not_answer_in_time_is_killed():
    before = set(psutil.Process().children())
    running = asyncio.ensure_future(run_child(["sleep", "600"], b"", 0.0))
    await asyncio.sleep(0)
    (child,) = set(psutil.Process().children()) - before
    with pytest.raises(TimeoutError):
        await running
    assert await asyncio.to_thread(wait_for_end, child.pid)
