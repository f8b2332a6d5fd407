"""One engine process. `sh` scripts stand in for the engine."""

import contextlib
import os
import sys

import pytest

from lead.engine.commands import Ask
from lead.engine.events import Alive, Answer, encode_line
from lead.engine_client import engine_process as module
from lead.engine_client.engine_process import EngineProcess

ALIVE = '{"type": "alive"}'


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts `body`, a shell script in which descriptor $6 is the pipe."""
    path = tmp_path / "engine"
    monkeypatch.setattr(sys, "executable", str(path))

    async def start(body):
        path.write_text("#!/bin/bash\n" + body)
        path.chmod(0o700)
        return await EngineProcess.start(2, [])

    return start


def wait_for_death(process):
    """Wait without the event loop, which must not notice the death yet."""
    with contextlib.suppress(ChildProcessError):  # asyncio has waited for it already
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


async def test_events_end_with_the_process(start):
    process = await start(f"echo '{ALIVE}' >&$6; echo '{ALIVE}' >&$6")
    assert [event async for event in process.events()] == [Alive(), Alive()]
    await process.end()
    assert process.outcome == "status 0"


async def test_an_event_that_was_cut_in_its_middle_is_none(start):
    process = await start(f"echo '{ALIVE}' >&$6; printf '{ALIVE}' >&$6; kill -9 $$")
    assert [event async for event in process.events()] == [Alive()]
    await process.end()
    assert process.outcome == "signal SIGKILL"


async def test_an_event_may_have_any_length(start, tmp_path):
    event = Answer(number=1, reply={"text": "x" * (4 << 20)})
    (tmp_path / "event").write_bytes(encode_line(event))
    process = await start(f"cat {tmp_path}/event >&$6; echo '{ALIVE}' >&$6")
    assert [event async for event in process.events()] == [event, Alive()]
    await process.end()


async def test_it_knows_no_keys(start, tmp_path, monkeypatch):
    monkeypatch.setenv("LEAD_API_KEY", "secret")
    process = await start(f"env > {tmp_path}/environment")
    assert [event async for event in process.events()] == []
    await process.end()
    assert "secret" not in (tmp_path / "environment").read_text()


async def test_a_process_that_does_not_end_is_killed(start, monkeypatch):
    monkeypatch.setattr(module, "_STOP_SECONDS", 0.05)
    process = await start(f"trap '' TERM PIPE; echo '{ALIVE}' >&$6; kill -STOP $$")
    async for _ in process.events():
        break
    await process.end()
    assert process.outcome == "signal SIGKILL"


@pytest.mark.both_loops
async def test_commands_to_a_process_that_was_killed_are_dropped(start):
    process = await start(f"echo '{ALIVE}' >&$6; kill -STOP $$")
    async for _ in process.events():
        process.kill_silent()
    process.send(Ask(number=1, question="Explain"))
    await process.end()
    assert process.outcome == "signal SIGKILL"


@pytest.mark.both_loops
async def test_events_end_when_a_command_finds_the_process_dead(start):
    process = await start("read line <&$3; kill -9 $$")
    process.send(Ask(number=1, question="Explain"))
    wait_for_death(process)
    process.send(Ask(number=1, question="Explain"))
    assert [event async for event in process.events()] == []
    await process.end()
    assert process.outcome == "signal SIGKILL"
