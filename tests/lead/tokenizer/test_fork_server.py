"""The real processes, with the shipped model."""

import asyncio
import json
import os
import signal
import socket

import pytest

from lead.settings.conversation import ConversationOptions
from lead.settings.limits import RequestLimits
from lead.tokenizer import forking
from lead.tokenizer.fork_server import ForkServer, ForkServerGoneError, WorkerDiedError
from lead.tokenizer.jobs import Refusal, Setup, TokenizeText, encode
from shared.models.builtin import builtin_target


def setup(**limits):
    return Setup(builtin_target(), None, ConversationOptions(), RequestLimits(**limits))


def tokenize(text):
    return encode(TokenizeText(text, add_special=False, parse_special=False, with_pieces=False))


@pytest.fixture
async def server():
    async with ForkServer(setup()) as server:
        await server.load()
        yield server


async def test_a_worker_tokenizes_and_ends_with_its_connection(server, vocabulary):
    worker = await server.fork()
    answer = json.loads(await worker.ask(tokenize("Hello fox")))
    assert answer["tokens"] == vocabulary.tokenize("Hello fox", add_special=False, parse_special=False)
    assert await server.end(worker) in {0, -signal.SIGKILL}


async def test_a_killed_worker_is_noticed_and_the_next_one_works(server):
    worker = await server.fork()
    os.kill(worker.pid, signal.SIGSEGV)
    with pytest.raises(WorkerDiedError):
        await worker.ask(tokenize("Hello"))
    assert await server.end(worker) == -signal.SIGSEGV
    assert await (await server.fork()).ask(tokenize("Hello"))


async def test_a_worker_that_has_grown_says_that_it_ends(server):
    worker = await server.fork()
    await worker.ask(tokenize("Hello"))
    assert not worker.has_ended
    await worker.ask(tokenize("word " * 400_000))
    assert worker.has_ended


async def test_the_system_ends_a_worker_whose_job_takes_too_long():
    async with ForkServer(setup(prepare_seconds=0.01)) as server:
        await server.load()
        worker = await server.fork()
        with pytest.raises(WorkerDiedError):
            await worker.ask(tokenize("word " * 800_000))
        assert await server.end(worker) == -signal.SIGPROF


async def test_a_job_with_a_bug_leaves_the_worker(server):
    worker = await server.fork()
    refusal = await worker.ask(encode(TokenizeText(None, False, False, False)))
    assert isinstance(refusal, Refusal)
    assert refusal.is_bug
    assert await worker.ask(tokenize("Hello"))


async def test_the_death_of_the_process_that_forks_is_noticed(server):
    worker = await server.fork()
    server.process.kill()
    await server.process.wait()
    with pytest.raises(ForkServerGoneError):
        await server.end(worker)


async def test_nothing_is_left_after_the_end():
    async with ForkServer(setup()) as server:
        await server.load()
        worker = await server.fork()
        os.kill(worker.pid, signal.SIGSTOP)
    assert server.process.returncode == 0
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)


async def test_a_front_that_ends_in_the_middle_of_a_command_is_no_error(capfd):
    async with ForkServer(setup()) as server:
        await server.load()
        forking = asyncio.ensure_future(server.fork())
        await asyncio.sleep(0)
        forking.cancel()
    assert server.process.returncode == 0
    assert "Traceback" not in capfd.readouterr().err


async def test_a_model_that_is_not_there_ends_the_process():
    missing = Setup(builtin_target().with_name("no.gguf"), None, ConversationOptions(), RequestLimits())
    async with ForkServer(missing) as server:
        with pytest.raises(ForkServerGoneError):
            await asyncio.wait_for(server.load(), 60)


@pytest.mark.parametrize("n_sent", [0, 3, 20, None])
def test_a_lead_that_ends_while_the_process_starts_leaves_no_traceback(monkeypatch, n_sent):
    for function in ("configure_logging", "_load", "share_memory"):
        monkeypatch.setattr(forking, function, lambda *_, **__: None)
    front, control = socket.socketpair()
    with control:
        with front:
            front.sendall(encode(setup())[:n_sent])
        forking.serve_forks(control)
