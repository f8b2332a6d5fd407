"""The engine's loop: take commands, plan, decode, commit."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lead.engine.cache_edits import apply_edits
from lead.engine.commands import Cancel, Command, Explain, PostDraft, SetPolicy, Sources, Submit
from lead.engine.events import Event, Explained
from lead.engine.scheduler import Scheduler
from lead.engine.speculation.manager import SpeculationManager
from lead.engine.step_plan import StepPlan
from lead.engine.target import Target
from shared.errors import KvCacheFullError

log = logging.getLogger("engine")


class Pipe(Protocol):
    """The seam to the front process (`lead.engine.pipe.EnginePipe`)."""

    open: bool

    def send(self, event: Event) -> None:
        """Hand an event to the front."""

    def drain(self, wait: float | None) -> list[Command]:
        """All commands that have arrived; if none have, wait `wait` seconds for one (None: for ever)."""


class Loop:
    """Runs until the front closes the pipe."""

    def __init__(
        self,
        target: Target,
        scheduler: Scheduler,
        speculation: SpeculationManager,
        pipe: Pipe,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` gives seconds; it must be the one that drafts were stamped with."""
        self._target = target
        self._scheduler = scheduler
        self._speculation = speculation
        self._pipe = pipe
        self._clock = clock
        self._wait = 0.0

    def run(self) -> None:
        """Raises DecodeFatalError: the context cannot be trusted any more and the process has to end."""
        while self._pipe.open:
            self.step()

    def step(self) -> None:
        """One step, or a wait for commands when there is nothing to do."""
        began = self._clock()
        for command in self._pipe.drain(None if self._scheduler.idle else self._wait):
            self._apply(command)
        now = self._clock()
        if self._wait:
            self._speculation.on_wait(now - began)
            self._wait = 0.0
        plan = self._scheduler.plan(now)
        if plan is None:
            return
        self._send(plan.events)
        if plan.wait > 0:
            self._wait = plan.wait
            return
        try:
            began = self._clock()
            logits = self._decode(plan)
            now = self._clock()
        except KvCacheFullError as error:
            log.warning("%s: making room", error)
            self._send(self._scheduler.on_cache_full())
        else:
            self._send(self._scheduler.commit(plan, logits, now, now - began))
            self._send(self._speculation.pop_events())

    def _send(self, events: Sequence[Event]) -> None:
        for event in events:
            self._pipe.send(event)

    def _decode(self, plan: StepPlan) -> list[NDArray[np.float32]]:
        apply_edits(plan.edits, self._target)
        return self._target.decode(plan.spans)

    def _apply(self, command: Command) -> None:
        match command:
            case Submit():
                self._scheduler.submit(command, self._clock())
            case Cancel():
                self._scheduler.cancel(command.sequence)
            case PostDraft():
                self._speculation.post_draft(command)
            case Sources():
                self._speculation.connect(command.names)
            case SetPolicy():
                self._speculation.set_policy(command.policy, command.depth)
            case Explain():
                self._pipe.send(Explained(report=self._speculation.describe()))
            case _:
                raise AssertionError(f"not a command for a running engine: {command}")
