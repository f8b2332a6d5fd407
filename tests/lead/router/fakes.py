"""Models without processes: each is an application on a real port, which may die."""

import asyncio
import contextlib

from fastapi import FastAPI

from lead.router.memory_need import MemoryNeed
from lead.router.model_host import ModelHost
from lead.router.model_process import AboutModel, ModelEndedError
from lead.router.models_file import ServedModel
from lead.settings.lead_settings import LeadSettings
from tests.lead.serving import app_served


class FakeProcess:
    """Serves `app` once it is loaded. `die` does what SIGKILL does."""

    def __init__(self, app=None, *, failure=None, vocabulary="v"):
        self.app = app or FastAPI()
        self.failure = failure
        self.about = AboutModel({"meta": {"n_ctx": 64}}, vocabulary)
        self.url = ""
        self.name = None
        self.ended = asyncio.get_running_loop().create_future()
        self.may_load = asyncio.Event()
        self.may_load.set()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self._serving = contextlib.AsyncExitStack()

    async def load(self, model):
        self.name = model.name
        waiting = asyncio.ensure_future(self.may_load.wait())
        await asyncio.wait([waiting, self.ended], return_when=asyncio.FIRST_COMPLETED)
        if self.ended.done():
            waiting.cancel()
            raise ModelEndedError("it has been stopped")
        if self.failure:
            self.ended.set_result(1)
            raise self.failure
        port, self._server = await self._serving.enter_async_context(app_served(self.app))
        self.url = f"http://127.0.0.1:{port}"

    async def die(self):
        """Cut all connections and close the port."""
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        await self._serving.aclose()
        if not self.ended.done():
            self.ended.set_result(-9)

    async def end(self):
        await self.may_end.wait()
        await self._serving.aclose()
        if not self.ended.done():
            self.ended.set_result(0)

    def own_bytes(self):
        return 0

    def headers_for(self, connection):
        return [("authorization", f"Bearer of {connection.state.principal}")]


def served(name, **options):
    return ServedModel(name, {"model": f"/{name}.gguf"}, LeadSettings(), **options)


class House:
    """A host with fake processes, in the order in which they were started."""

    def __init__(self, names="ab", room=1, make=FakeProcess, models=None, need=1, **options):
        self.processes = []
        self.make = make
        self.measured = []

        async def spawn():
            self.processes.append(self.make())
            return self.processes[-1]

        async def measure(options, in_use):
            del in_use
            self.measured.append(options["model"])
            return MemoryNeed(sizes={"CPU": need})

        self.host = ModelHost(
            models or [served(name) for name in names],
            host_room=lambda held: room + held,
            spawn=spawn,
            measure_need=measure,
            prepares=False,
            **options,
        )

    def __getitem__(self, name):
        """The last process in which a model was started."""
        return [process for process in self.processes if process.name == name][-1]


@contextlib.asynccontextmanager
async def running_house(*arguments, **options):
    house = House(*arguments, **options)
    try:
        yield house
    finally:
        await house.host.stop()


def failing(message="no such file", *, is_final=True):
    return ModelEndedError(message, is_final=is_final)


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.01)
