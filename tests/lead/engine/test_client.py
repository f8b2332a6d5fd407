"""The engine client starts the engine, hands on what it says, and survives whatever becomes of it.

The engine here is a script that is run in place of `python -m lead.engine.worker`.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from lead.engine import client as module
from lead.engine.client import EngineClient, EngineState
from lead.engine.messages import Finished, Load, PostDraft, Started, Submit
from shared.errors import ModelLoadError, UnavailableError
from shared.sampling import SamplingParameters

LOAD = Load(
    model=Path("m.gguf"), n_ctx=0, n_slots=1, n_batch=32, n_threads=1, n_gpu_layers=0, depth=4
)
PREAMBLE = """\
    #!{python}
    import os, signal, socket, sys, time
    pipe = socket.socket(fileno=int(sys.argv[3]))
    def say(text):
        pipe.sendall(text.encode())
    def ready():
        say('{{"type": "ready", "n_ctx": 64, "n_ctx_sequence": 64, "n_slots": 1, "speculates": true, "exact": true}}\\n')
    commands = pipe.makefile()
    load = commands.readline()
    """
READY = "ready()\n"
SERVES = READY + "for line in commands: say(line.replace('submit', 'started').replace('}', ', \"n_cached\": 0}', 1) if 'submit' in line else '')\n"


class Owner:
    """What the front does with a client, and what it hears."""

    def __init__(self):
        self.client = EngineClient(LOAD, "info", self.hear, self.lose)
        self.events = []
        self.lost = []
        self.news = asyncio.Event()
        self.running = asyncio.ensure_future(self.client.run())

    def hear(self, event):
        self.events.append(event)
        self.news.set()

    def lose(self, reason):
        self.lost.append(reason)
        self.news.set()

    async def ready(self):
        while self.client.state is not EngineState.READY:
            await asyncio.sleep(0)
            if self.running.done():
                self.running.result()

    async def heard(self, enough):
        while not enough():
            self.news.clear()
            await self.news.wait()


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Sets what the engine does."""
    path = tmp_path / "engine"
    python = sys.executable
    monkeypatch.setattr(sys, "executable", str(path))

    def does(body):
        path.write_text(textwrap.dedent(PREAMBLE).format(python=python) + body)
        path.chmod(0o700)

    return does
