"""A lead with a scripted engine behind a real socket, for clients that other people wrote."""

import asyncio
import contextlib
import socket

import pytest
import uvicorn

from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_target
from tests.lead.fakes import ScriptedLead


@pytest.fixture(scope="session")
def vocabulary():
    return Vocabulary.load(builtin_target())


@pytest.fixture
async def lead(vocabulary):
    lead = ScriptedLead(vocabulary)
    lead.engine.ready = lead.engine.ready.model_copy(update={"n_ctx": 4096, "n_ctx_sequence": 4096})
    return lead


@pytest.fixture
async def url(lead):
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(lead.app, lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # they are pytest's
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    await serving
