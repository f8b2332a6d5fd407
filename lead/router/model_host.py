"""Runs the models that requests need, each in a process; `ModelPool` decides which."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

from lead.http.client_gone import cancel
from lead.router.memory_need import MemoryNeed, measure
from lead.router.model_pool import (
    Admitted,
    MeasureModel,
    MemorySizes,
    ModelPool,
    ModelState,
    NotServed,
    PooledModel,
    StartModel,
    StopModel,
    WaitingFor,
)
from lead.router.model_process import ModelEndedError, ModelProcess
from lead.router.models_file import ServedModel
from lead.router.unusable_files import UnusableFiles
from shared.errors import (
    ConfigError,
    DuoError,
    NotServingError,
    QueueFullError,
    UnavailableError,
    UnusableModelError,
)
from shared.llama.placement import CPU

log = logging.getLogger("models")

_RETRY_SECONDS = 1.0
"""The time after which a pinned model that could not be started is started again."""


class ModelHost:
    """Runs the processes of models as a `ModelPool` decides."""

    def __init__(
        self,
        models: Iterable[ServedModel],
        *,
        maximum: int = 0,
        max_waiting: int = 128,
        idle_seconds: float = math.inf,
        host_room: Callable[[int], int],
        spawn: Callable[[], Awaitable[ModelProcess]] = ModelProcess.spawn,
        measure_need: Callable[[Mapping[str, Any], Mapping[str, int]], Awaitable[MemoryNeed]] = measure,
        prepares: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """maximum: the maximum number of models in memory; 0: any number. max_waiting: the maximum number of
        requests that wait for a model.

        host_room: returns the host memory for all models in bytes, given the bytes that running models hold.
        prepares: keep a process ready for the next model. clock: returns seconds.
        """
        self.models: dict[str, ServedModel] = {}
        """The models that may be requested, by name."""
        self.needs: dict[str, MemoryNeed] = {}
        """The measured memory of models, by name."""
        self.pool = ModelPool(maximum)
        self.on_change: Callable[[], None] = lambda: None
        """This function is called when a model has been loaded or has ended."""
        self._max_waiting = max_waiting
        self._idle_seconds = idle_seconds
        self._host_room = host_room
        self._spawn = spawn
        self._prepares = prepares
        self._measure_need = measure_need
        self._clock = clock
        self._devices: dict[str, int] = {}  # free bytes by name
        self._unusable = UnusableFiles()
        self._processes: dict[str, ModelProcess] = {}  # by the name of the model
        self._prepared: ModelProcess | None = None  # started, without a model yet
        self._admissions: dict[WaitingFor, asyncio.Future[ModelProcess]] = {}  # of requests that wait
        self._tasks: set[asyncio.Future[Any]] = set()  # actions in progress
        self._alarm: asyncio.TimerHandle | None = None  # when the next idle model is to be unloaded
        self._is_stopping = False
        self.serve(models)

    def serve(self, models: Iterable[ServedModel]) -> None:
        """Replace the list of models.

        Loaded models that are not in it, or have changed, are unloaded after their requests.
        """
        wanted = {model.name: model for model in models}
        for name in self.models.keys() - wanted.keys():
            if self.pool.forget(name):
                del self.models[name]
            else:
                self.unload(name)
        for model in wanted.values():
            if model == self.models.get(model.name):
                continue
            if model.name in self.models:
                self.unload(model.name)
                self.pool.models[model.name].pinned = model.pinned
                self.pool.forget_need(model.name)
            else:
                self.pool.add(
                    PooledModel(model.name, pinned=model.pinned, idle_seconds=self._usual_seconds(model))
                )
            self.models[model.name] = model

    def _usual_seconds(self, model: ServedModel) -> float:
        """Return the idle time after which a model is unloaded, unless a request has set another one."""
        seconds = model.settings.sleep_idle_seconds
        return seconds if seconds > 0 else self._idle_seconds

    def state(self, name: str) -> PooledModel:
        return self.pool.models[name]

    def process(self, name: str) -> ModelProcess | None:
        """Return the process of a model; None unless it is loaded."""
        return self._processes.get(name) if self.state(name).state is ModelState.LOADED else None

    def fits(self, name: str, n_bytes: int, room: MemorySizes) -> bool | None:
        """Return whether a model fits in `room` if all others are unloaded; None: unknown.

        n_bytes: the size of its file, used until its need has been measured.
        """
        if need := self.needs.get(name):
            return all(size <= room.get(place, size) for place, size in need.sizes.items())
        return True if n_bytes <= room[CPU] else None

    def start(self) -> None:
        """Load the models that are to be loaded at the start."""
        self._do(self._prepare())
        for model in self.models.values():
            if model.on_startup or model.pinned:
                self.preload(model.name)

    def preload(self, name: str) -> None:
        """Begin to load a model, which stays for the usual idle time. Does nothing if there is no such
        model.
        """
        if model := self.models.get(name):
            self._do(self._load(name, self._usual_seconds(model)))

    @contextlib.asynccontextmanager
    async def use(self, name: str, keep_seconds: float | None = None) -> AsyncIterator[ModelProcess]:
        """Yield the process of a model, which is started if needed and not unloaded within this context.

        keep_seconds: the idle time after which it is unloaded; None: as before. Raises QueueFullError. Raises
        UnavailableError with the reason if the model cannot be started now, UnusableModelError if its file
        is damaged.
        """
        if (model := self.models.get(name)) and (reason := await self._unusable.reason(model.path)):
            raise UnusableModelError(reason)
        if self._is_stopping:
            raise NotServingError("the server is shutting down")
        if name not in self.models:
            raise UnavailableError(f"{name} is no longer served")
        if self.pool.n_waiting >= self._max_waiting:
            raise QueueFullError("too many requests wait for a model: try again in a moment")
        ticket = object()
        admission = self._admissions[ticket] = asyncio.get_running_loop().create_future()
        self.pool.ask(ticket, name)
        try:
            self.decide()
            process = await asyncio.shield(admission)  # may be given and cancelled at the same time
        except BaseException:
            if admission.done() and admission.exception() is None:
                self._release(name)
            else:
                self.pool.withdraw(ticket)
                self.decide()
            raise
        finally:
            del self._admissions[ticket]
        try:
            yield process
        finally:
            if keep_seconds is not None:
                self.pool.keep(name, keep_seconds)
            self._release(name)

    def unload(self, name: str) -> None:
        """Unload a model after its running requests; returns at once."""
        self.pool.unload(name)
        self.decide()

    def refuse_all(self, reason: str) -> None:
        """Refuse all requests that wait for a model, and all later ones; call it before `stop`."""
        self._is_stopping = True
        for admission in self._admissions.values():
            if not admission.done():
                admission.set_exception(NotServingError(reason))

    async def stop(self) -> None:
        """End all processes."""
        self._is_stopping = True
        if self._alarm:
            self._alarm.cancel()
        await asyncio.gather(*(process.end() for process in self._processes.values()))
        await cancel(*self._tasks)
        if self._prepared:
            await self._prepared.end()

    def decide(self) -> None:
        """Perform the pool's actions that are due; call it after every change."""
        if self._is_stopping:
            return
        while actions := self.pool.next(self._clock(), self.room):
            for action in actions:
                match action:
                    case Admitted(ticket, name):
                        self._admissions[ticket].set_result(self._processes[name])
                    case NotServed():
                        self._refuse(action)
                    case MeasureModel(name):
                        self._do(self._measure(name))
                    case StartModel(name):
                        self._do(self._run(name))
                    case StopModel(name):
                        self._stop_process(name)
        self._set_alarm()

    def _stop_process(self, name: str) -> None:
        process = self._processes.get(name)
        if process is None or not process.ended.done():
            log.info("%s is unloaded", name)
        if process:  # `_run` ends a process that is still being started
            self._do(process.end())

    def room(self) -> dict[str, int]:
        """Return the bytes by place that all models together may use; asks the system, which takes
        milliseconds.
        """
        held = sum(process.own_bytes() for process in list(self._processes.values()))
        return {CPU: self._host_room(held), **self._devices}

    def _set_alarm(self) -> None:
        if self._alarm:
            self._alarm.cancel()
            self._alarm = None
        if (deadline := self.pool.deadline()) is not None:
            seconds = max(0.0, deadline - self._clock())
            self._alarm = asyncio.get_running_loop().call_later(seconds, self.decide)

    def _release(self, name: str) -> None:
        self.pool.release(name, self._clock())
        self.decide()

    def _refuse(self, refused: NotServed, name: str | None = None) -> None:
        """Fail a waiting request; name: the model that failed."""
        if not (admission := self._admissions[refused.ticket]).done():
            is_damaged = name in self.models and self._unusable.has(self.models[name].path)
            admission.set_exception((UnusableModelError if is_damaged else UnavailableError)(refused.reason))

    async def _measure(self, name: str) -> None:
        in_use: dict[str, int] = {}
        for other in self._processes:
            for place, n_bytes in self.needs[other].sizes.items():
                if place != CPU:
                    in_use[place] = in_use.get(place, 0) + n_bytes
        model = self.models[name]
        try:
            need: MemoryNeed | DuoError = await self._measure_need(model.options, in_use)
        except (ConfigError, UnavailableError) as error:
            need = error
            await self._unusable.note(model.path, str(error))
        if self.models.get(name) is not model:
            pass  # replaced by a model that is measured when needed, or no longer served
        elif isinstance(need, DuoError):
            log.error("%s: %s", name, need)
            for refused in self.pool.cannot_measure(name, str(need)):
                self._refuse(refused, name)
        else:
            self.needs[name] = need
            self._devices |= need.free
            self.pool.measured(name, need.sizes)
        self.decide()

    async def _run(self, name: str) -> None:
        """Run a model's process from its start to its end."""
        failure, is_final = "", False
        started_at = self._clock()
        try:
            process = self._processes[name] = await self._take()
            try:
                if self._is_loading(name):
                    await process.load(self.models[name])
                if self._is_loading(name):  # it was not unloaded meanwhile
                    log.info("%s is loaded after %.1f s", name, self._clock() - started_at)
                    self.pool.loaded(name, self._clock())
                    self.decide()
                    self.on_change()
                    self._do(self._prepare())
                    await asyncio.shield(process.ended)
                    if self.process(name):
                        failure = "its process has ended"
                        self.pool.unload(name)  # it gets no requests until its children have ended, too
            finally:
                await process.end()
                del self._processes[name]
        except (ModelEndedError, OSError) as error:
            if self._is_loading(name):
                await self._unusable.note(self.models[name].path, str(error))
            if self._is_loading(name):  # still
                failure, is_final = str(error), getattr(error, "is_final", False)
        self._end(name, failure, is_final=is_final)

    def _is_loading(self, name: str) -> bool:
        return self.state(name).state is ModelState.LOADING

    async def _take(self) -> ModelProcess:
        """Return the prepared process, or a new one; raises OSError."""
        prepared, self._prepared = self._prepared, None
        return prepared if prepared and not prepared.ended.done() else await self._spawn()

    async def _prepare(self) -> None:
        """Start a process for the next model in advance: importing takes a third of a model's start."""
        if self._prepares and self._prepared is None:
            try:
                self._prepared = await self._spawn()
            except OSError as error:
                log.warning("cannot start a process for the next model: %s", error)

    def _end(self, name: str, failure: str, *, is_final: bool) -> None:
        """Record that the process of a model has ended. failure: empty if that was intended."""
        if self._is_stopping:
            return
        if failure:
            log.error("%s: %s", name, failure)
        for refused in self.pool.ended(name, failure, is_final=is_final):
            self._refuse(refused, name)
        self.decide()
        self.on_change()
        if failure and self.models[name].pinned and not is_final:
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self.preload, name)

    async def _load(self, name: str, keep_seconds: float) -> None:
        try:
            async with self.use(name, keep_seconds):
                pass
        except (UnavailableError, UnusableModelError) as error:
            log.error("cannot load %s: %s", name, error)  # noqa: TRY400 - a sentence for a person

    def _do(self, work: Coroutine[Any, Any, object]) -> None:
        """Run `work` in the background, until `stop`."""
        if self._is_stopping:
            work.close()
            return
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._note_done)

    def _note_done(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("managing a model failed", exc_info=error)
