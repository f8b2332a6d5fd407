"""A pool of models in memory: which are started, which are unloaded to make room, which requests wait.

It knows no processes, HTTP or clock: `next` returns the actions to perform, and the caller reports their
results. Requests are served in the order of arrival. Exception: a request for a loaded model need not wait
for a model that is being loaded.
"""

import enum
import functools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from shared.errors import IntegrityError

WaitingFor = Hashable
"""The caller's identification of a request that needs a model."""
MemorySizes = Mapping[str, int]
"""Bytes by place: the CPU, or the name of a device."""

RoomGauge = Callable[[], MemorySizes]

_MAX_DEATHS = 8
"""The maximum number of successive deaths of a process while its model loads. After more, requests fail."""


class ModelState(enum.Enum):
    """The state of a model. A model in state UNLOADING still occupies memory."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"
    UNLOADING = "unloading"


@dataclass(slots=True)
class PooledModel:
    """The record of one model; only `ModelPool` changes it.

    pinned: never unload it for another model. idle_seconds: idle time after which it is unloaded. need: its
    memory; None: not measured yet. n_running: running requests. used_at: when a request last began or ended.
    failure: why the last start failed; empty: it did not. n_deaths: successive deaths of its process while
    loading.
    """

    name: str
    pinned: bool = False
    idle_seconds: float = math.inf
    need: MemorySizes | None = None
    state: ModelState = ModelState.UNLOADED
    n_running: int = 0
    used_at: float = 0.0
    failure: str = ""
    n_deaths: int = 0
    is_measured: bool = False
    """True if `need` was measured, or is being measured."""
    is_leaving: bool = False
    """True if the process gets no more requests, and is stopped after its last one."""
    is_unwanted: bool = False
    """True if `unload` was called for it."""


@dataclass(frozen=True, slots=True)
class MeasureModel:
    """Measure the model's memory, and report `measured`."""

    name: str


@dataclass(frozen=True, slots=True)
class StartModel:
    """Start the model's process, and report `loaded` or `ended`."""

    name: str


@dataclass(frozen=True, slots=True)
class StopModel:
    """End the model's process, and report `ended`."""

    name: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """Send the request to its model; report `release` when it has ended."""

    ticket: WaitingFor
    name: str


@dataclass(frozen=True, slots=True)
class NotServed:
    """Fail the request with this reason."""

    ticket: WaitingFor
    reason: str


ModelAction = MeasureModel | StartModel | StopModel | Admitted | NotServed


@dataclass(slots=True)
class ModelPool:
    """Decides which models are in memory, at most `maximum` at a time; 0: any number."""

    maximum: int = 0
    models: dict[str, PooledModel] = field(default_factory=dict)
    _waiting: dict[WaitingFor, str] = field(default_factory=dict)
    """The model that each waiting request needs, in the order in which the requests arrived."""

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    def add(self, model: PooledModel) -> None:
        self.models[model.name] = model

    def forget(self, name: str) -> bool:
        """Remove a model from the pool; return False if it is in use.

        It is in use if it is loaded or being measured, or if requests wait for it or run.
        """
        model = self.models[name]
        is_present = model.state is not ModelState.UNLOADED
        is_measuring = model.is_measured and model.need is None
        if is_present or is_measuring or model.n_running or name in self._wanted():
            return False
        del self.models[name]
        return True

    def ask(self, ticket: WaitingFor, name: str) -> None:
        self._waiting[ticket] = name

    def withdraw(self, ticket: WaitingFor) -> None:
        """Drop a waiting request; does nothing if it has been admitted."""
        self._waiting.pop(ticket, None)

    def release(self, name: str, now: float) -> None:
        """Record that an admitted request has ended."""
        model = self.models[name]
        model.n_running -= 1
        model.used_at = now

    def keep(self, name: str, seconds: float) -> None:
        """Set the idle time after which a model is unloaded."""
        self.models[name].idle_seconds = seconds

    def unload(self, name: str) -> None:
        """Unload a model after its running requests, or at once if it is being loaded.

        Waiting requests load it again.
        """
        model = self.models[name]
        model.is_unwanted = model.state in {ModelState.LOADING, ModelState.LOADED}

    def measured(self, name: str, need: MemorySizes) -> None:
        model = self.models[name]
        model.need, model.is_measured = need, True

    def forget_need(self, name: str) -> None:
        """Discard the measured need, so that the model is measured again before its next start."""
        model = self.models[name]
        model.need, model.is_measured = None, False

    def cannot_measure(self, name: str, reason: str) -> Iterator[NotServed]:
        """Record that measuring failed, so the model cannot be loaded; yield the requests that fail."""
        self.models[name].is_measured = False
        self.models[name].failure = reason
        yield from self._refuse(name, reason)

    def loaded(self, name: str, now: float) -> None:
        model = self.models[name]
        self._expect(model, ModelState.LOADING)
        model.state, model.used_at, model.failure, model.n_deaths = ModelState.LOADED, now, "", 0

    def ended(self, name: str, failure: str = "", *, is_final: bool = False) -> Iterator[NotServed]:
        """Record the end of a model's process; yield the requests that fail.

        failure: the reason if the end was not intended. is_final: starting it again would not help.
        """
        model = self.models[name]
        self._expect(model, ModelState.LOADING, ModelState.LOADED, ModelState.UNLOADING)
        was_loading = model.state is ModelState.LOADING
        model.state, model.is_unwanted, model.is_leaving = ModelState.UNLOADED, False, False
        if not was_loading or not failure:
            return
        model.n_deaths += 1
        if is_final or model.n_deaths > _MAX_DEATHS:
            model.failure, model.n_deaths = failure, 0
            yield from self._refuse(name, failure)

    def next(self, now: float, measure_room: RoomGauge) -> list[ModelAction]:
        """Return the actions to perform now.

        measure_room: returns the bytes by place that all models together may use; other places are unlimited.
        It is called only if a model is to be started.
        """
        room = functools.cache(measure_room)
        return [*self._expire(now), *self._serve(now, room), *self._stop_leaving()]

    def deadline(self) -> float | None:
        """Return the time when the next idle model will be unloaded, if no request arrives; None: never."""
        return min((model.used_at + model.idle_seconds for model in self._idle()), default=None)

    def awake(self) -> list[PooledModel]:
        """Return the loaded models: those with most running requests first, then the most recently used."""
        loaded = [model for model in self.models.values() if model.state is ModelState.LOADED]
        return sorted(loaded, key=lambda model: (-model.n_running, -model.used_at))

    def check_integrity(self) -> None:
        """Raise AssertionError unless the records of the pool are consistent."""
        for model in self.models.values():
            assert model.n_running >= 0, model
            assert model.state is not ModelState.UNLOADING or not model.n_running, model
        assert all(name in self.models for name in self._waiting.values())

    def _expire(self, now: float) -> Iterator[ModelAction]:
        for model in self._idle():
            if now - model.used_at >= model.idle_seconds:
                yield self._stop(model)

    def _serve(self, now: float, room: RoomGauge) -> Iterator[ModelAction]:
        for model in self.models.values():
            model.is_leaving = model.is_unwanted
        is_blocked = False
        for ticket, name in list(self._waiting.items()):
            if ticket not in self._waiting:  # refused meanwhile
                continue
            model = self.models[name]
            match model.state:
                case ModelState.LOADED if not model.is_leaving:
                    del self._waiting[ticket]
                    model.n_running += 1
                    model.used_at = now
                    yield Admitted(ticket, name)
                case ModelState.UNLOADED if model.need is None:
                    is_blocked = True
                    if not model.is_measured:
                        model.is_measured = True
                        yield MeasureModel(name)
                case ModelState.UNLOADED if not is_blocked:
                    actions = list(self._make_room(model, room))
                    is_blocked = model.state is ModelState.UNLOADED
                    yield from actions
                case _:
                    pass

    def _make_room(self, wanted: PooledModel, room: RoomGauge) -> Iterator[ModelAction]:
        """Start `wanted`, or mark other models to leave first."""
        present = [model for model in self.models.values() if model.state is not ModelState.UNLOADED]
        if self._fits(wanted, present, room):
            wanted.state = ModelState.LOADING
            yield StartModel(wanted.name)
            return
        staying = [
            model for model in present if model.state is not ModelState.UNLOADING and not model.is_leaving
        ]
        victims: list[PooledModel] = []
        waited_for = self._wanted()
        for each in sorted(staying, key=lambda model: (model.n_running > 0, model.used_at)):
            if self._fits(wanted, staying, room):
                break
            is_loading_for_somebody = each.state is ModelState.LOADING and each.name in waited_for
            if not is_loading_for_somebody and not each.pinned:
                staying.remove(each)
                victims.append(each)
        if self._fits(wanted, staying, room):
            self._dismiss(victims, wanted, staying, room)
        elif all(model.pinned for model in staying):
            names = ", ".join(model.name for model in staying)
            reason = f"{wanted.name} does not fit into memory beside the pinned models ({names})"
            yield from self._refuse(wanted.name, f"{reason}. Pin fewer models")

    def _dismiss(
        self, victims: list[PooledModel], wanted: PooledModel, staying: list[PooledModel], room: RoomGauge
    ) -> None:
        """Mark the models of `victims` that must leave for `wanted`, least recently used first."""
        for victim in reversed(victims):
            if self._fits(wanted, [*staying, victim], room):
                staying.append(victim)
            else:
                victim.is_leaving = True

    def _fits(self, wanted: PooledModel, others: Iterable[PooledModel], room: RoomGauge) -> bool:
        """Return whether `wanted` fits beside `others`; True if it is alone, because needs are estimates."""
        others = list(others)
        if not others:
            return True
        if self.maximum and len(others) >= self.maximum:
            return False
        needs = [model.need or {} for model in (wanted, *others)]
        return all(sum(need.get(place, 0) for need in needs) <= n_bytes for place, n_bytes in room().items())

    def _stop_leaving(self) -> Iterator[ModelAction]:
        for model in self.models.values():
            is_present = model.state in {ModelState.LOADING, ModelState.LOADED}
            if model.is_leaving and is_present and not model.n_running:
                yield self._stop(model)

    def _idle(self) -> list[PooledModel]:
        """Return the models that are to be unloaded after an idle time, as no requests run or wait."""
        waited_for = self._wanted()
        return [
            model
            for model in self.models.values()
            if model.state is ModelState.LOADED
            and not (model.n_running or model.pinned or model.name in waited_for)
            and math.isfinite(model.idle_seconds)
        ]

    def _wanted(self) -> set[str]:
        """Return the models that requests wait for."""
        return set(self._waiting.values())

    def _stop(self, model: PooledModel) -> StopModel:
        model.state = ModelState.UNLOADING
        return StopModel(model.name)

    def _refuse(self, name: str, reason: str) -> Iterator[NotServed]:
        for ticket in [ticket for ticket, wanted in self._waiting.items() if wanted == name]:
            del self._waiting[ticket]
            yield NotServed(ticket, reason)

    def _expect(self, model: PooledModel, *states: ModelState) -> None:
        if model.state not in states:
            raise IntegrityError(f"{model.name} is {model.state.value}, expected {states}")
