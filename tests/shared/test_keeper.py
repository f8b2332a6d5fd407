"""Children under asyncio."""

import pytest

from shared.keeper import Child


@pytest.mark.parametrize(
    ("command", "outcome"),
    [("exit 3", "status 3"), ("kill -SEGV $$", "signal SIGSEGV"), ("kill -40 $$", "signal 40")],
)
async def test_how_a_child_has_ended_is_said_whatever_the_signal(command, outcome):
    child = Child(["sh", "-c", command], stop_seconds=10.0)
    await child.ended
    assert child.outcome == outcome
