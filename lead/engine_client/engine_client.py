"""The front's client of the engine: starts the process, talks to it, restarts it when it dies."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn, Protocol

from lead.engine.commands import Cancel, Command, PolicyName, SetBacks, SetPolicy, Submit
from lead.engine.events import (
    Alive,
    Answer,
    Committed,
    DraftsDropped,
    Event,
    LoadFailed,
    Pieces,
    Ready,
)
from lead.engine.load import Load
from lead.engine.question import EngineQuestion, R
from lead.engine_client.engine_process import EngineProcess
from lead.engine_client.engine_state import EngineState
from lead.engine_client.front_vocabulary import KnownPieces
from lead.engine_client.open_questions import OpenQuestions
from lead.engine_client.sequences import Broadcast, LiveSequence, Sequences
from shared.descriptors import SpareDescriptors
from shared.diagnostics.findings import count
from shared.errors import EngineError, ModelLoadError, QueueFullError, RequestError, UnavailableError
from shared.keeper import Keeper
from shared.logs import LogLevel
from shared.protocol import Draft, Tune
from shared.supervisor import MAX_DEATHS, MAX_DEATHS_AT_START, Supervisor

log = logging.getLogger("lead")

_MAX_UNSENT_BYTES = 1 << 16
"""While the engine has more unread bytes than this, drafts are held back; only the newest are sent later."""
_BEATS = 10
"""The number of signs of life that the engine sends within --engine-timeout."""
_LOOK_SECONDS = 10.0
"""The time limit for the reply to a question that `only_looks`. Replies come between two steps, and a step of
a slow machine may take seconds."""
_N_SPARE = 8
"""Descriptors reserved for starting an engine: for its pipe, and for starting a process."""


class DraftReports(Protocol):
    """Receives the engine's reports on drafts of backs (`lead.backs.registry.Backs`).

    tune: new limits for drafts. count_stale: the number of a back's drafts that came too late.
    """

    def tune(self, tune: Tune) -> None: ...

    def count_stale(self, name: str, n: int) -> None: ...


class EngineClient:
    """Supervises the engine process and sends it commands.

    `run` keeps an engine running until `stop`. The other methods may be called at any time, from the same
    event loop.
    """

    def __init__(
        self,
        load: Load,
        sequences: Sequences,
        log_level: LogLevel,
        *,
        share_grammars: Callable[[], int],
        log_json: bool = False,
        max_queue: int | None = None,
        timeout: float = 0.0,
        sleep_seconds: float = 0.0,
        on_sleep: Callable[[], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """max_queue: the maximum number of sequences that wait for a slot; None: any number.

        timeout: seconds without a sign of life after which the engine is killed; 0: never. sleep_seconds:
        seconds without sequences after which the engine is ended until a sequence comes; 0 or less: never.
        on_sleep: called when it has ended. share_grammars: `TokenizerPool.share`. clock: returns the seconds
        that events are stamped with.
        """
        self._load = load.model_copy(update={"heartbeat_seconds": timeout / _BEATS})
        self._sequences, self._share_grammars = sequences, share_grammars
        self._max_queue, self._timeout = max_queue, timeout
        self._keeper: Keeper[EngineProcess] = Keeper(
            "the engine",
            Supervisor.of_model(sleep_seconds),
            clock,
            is_busy=lambda: bool(self._sequences or self._questions),
            on_sleep=on_sleep,
        )
        self._log_options = [log_level, *(["json"] if log_json else [])]
        self._clock = clock
        self._holds_drafts = False  # sequences have drafts to send when the engine reads again
        self._connected = SetBacks(names=[])  # the backs, for the next engine process
        self._questions = OpenQuestions(self._send)
        self._spare = SpareDescriptors(_N_SPARE)  # for starting a process when connections use all others
        self.pieces = KnownPieces()
        """The bytes of tokens that the engine has sent, for the front's vocabulary."""
        self.ready: Ready | None = None
        """The engine's last `Ready`."""
        self.has_been_ready = asyncio.Event()
        """Set when the engine is ready for the first time, and never cleared."""

    @property
    def state(self) -> EngineState:
        return EngineState[self._keeper.state.name]

    @property
    def _stopped(self) -> bool:
        return self.state is EngineState.STOPPED

    async def run(self, backs: "asyncio.Future[DraftReports]") -> None:
        """Keep an engine running and process its events until `stop`.

        backs: awaited while the first engine loads the model; its exceptions propagate. Raises ModelLoadError
        if no engine becomes ready. Raises EngineError if no engine will be started again, or if the first
        cannot load the model for now.
        """
        with contextlib.closing(self._spare):
            await self._keeper.run(self._start, lambda process: self._talk(process, backs))
        if not self._stopped:
            self._fail()

    def stop(self) -> None:
        """Make `run` return after the engine has finished its step and exited; it is killed if that takes too
        long.
        """
        self._keeper.stop()

    def submit(
        self, request: Submit, *, private: bool = False, changed: Broadcast | None = None
    ) -> LiveSequence:
        """Submit a prompt, which is continued when an engine is ready. Parameters as in `Sequences.create`.

        Raises NotServingError, QueueFullError.
        """
        self.wake()
        if not self.state.takes_requests:
            raise self.state.refusal()
        self._check_queue()
        sequence = self._sequences.create(request, private=private, changed=changed)
        self._feed()
        return sequence

    def wake(self) -> None:
        """Start an engine that sleeps, before a sequence is submitted."""
        self._keeper.use()

    def cancel(self, sequence: LiveSequence) -> None:
        """Stop a sequence within one step; does nothing if it has ended."""
        if not sequence.ended:
            self._sequences.discard(sequence)
            if self.state is EngineState.READY:
                self._send(Cancel(sequence=sequence.id))

    def post_draft(self, draft: Draft) -> None:
        """Send a draft. While the engine does not read, only the newest draft of each source is kept."""
        if self.state is not EngineState.READY or self._keeper.child is None:
            return
        if self._keeper.child.n_unsent_bytes > _MAX_UNSENT_BYTES:
            if sequence := self._sequences.get(draft.sequence):
                sequence.held_drafts[draft.source] = draft
                self._holds_drafts = True
        else:
            self._send(draft)

    def connect(self, backs: SetBacks) -> None:
        """Set the connected backs, also for engines started later."""
        self._connected = backs
        if self.state is EngineState.READY:
            self._send(self._connected)

    def set_policy(self, policy: PolicyName, depth: int) -> None:
        """Set the policy for the depth of drafts, also for engines started later."""
        self._load = self._load.model_copy(update={"policy": policy, "depth": depth})
        if self.state is EngineState.READY:
            self._send(SetPolicy(policy=policy, depth=depth))

    async def ask(self, question: EngineQuestion[R]) -> R:
        """Return the engine's reply to a question, which it answers between two steps.

        Wakes a sleeping engine, and waits for one that is being restarted. A question that `only_looks` does
        neither, and fails after 10 seconds.

        Raises NotServingError if there is no engine. Raises UnavailableError if the engine has ended, is
        overloaded or reports a temporary failure. Raises RequestError if the engine refuses the question.
        """
        if not question.only_looks:
            await self._wait_until_ready()
        if self.state is not EngineState.READY:
            raise self.state.refusal()
        try:
            async with asyncio.timeout(_LOOK_SECONDS if question.only_looks else None):
                answer = await self._questions.ask(question)
        except TimeoutError:
            raise UnavailableError(f"the engine has not replied for {_LOOK_SECONDS:g} s") from None
        if answer.reason:
            raise (UnavailableError if answer.may_recover else RequestError)(answer.reason)
        return question.read_reply(answer.reply)

    async def _wait_until_ready(self) -> None:
        """Wait until an engine is ready; raises NotServingError if none will be."""
        self.wake()
        while self.state is not EngineState.READY:
            if not self.state.takes_requests:
                raise self.state.refusal()
            await self._keeper.wait()
            self.wake()

    async def _start(self) -> EngineProcess:
        images = self._load.images
        with self._spare.released():
            return await EngineProcess.start(
                self._share_grammars(), self._log_options, [images.descriptor] if images else []
            )

    async def _talk(self, process: EngineProcess, backs: "asyncio.Future[DraftReports]") -> None:
        """Process the events of an engine process until it stops replying."""
        if not self._stopped:  # while it was being started
            self._send(self._load)
        try:
            await asyncio.wait([process.ended, backs], return_when=asyncio.FIRST_COMPLETED)
            if backs.done():
                backs.result()
            await self._keeper.listen(process.events(), lambda event: self._take(event, backs), self._timeout)
        finally:
            self._questions.close_all("the engine has ended")  # so that waiting callers fail at once
            self._keeper.lost(self._sequences.on_death)

    def _fail(self) -> NoReturn:
        self._sequences.fail_all(f"{self.state.value}. Read the lead's log")
        if self.ready is None:
            raise ModelLoadError(
                f"the engine died {MAX_DEATHS_AT_START} times before it was ready. Read the log"
            )
        raise EngineError(f"the engine died {MAX_DEATHS} times in a row while idle. Read the log")

    def _take(self, event: Event, backs: "asyncio.Future[DraftReports]") -> None:
        match event:
            case DraftsDropped() | Tune():
                _tell(event, backs.result())  # it has heard of backs, so they are there
            case Ready():
                self._become_ready(event)
            case Answer():
                self._questions.close(event)
            case LoadFailed():
                self._take_load_failure(event)
            case Alive():
                pass
            case Pieces():
                self.pieces.learn(event)
            case _:
                if isinstance(event, Committed):
                    self._keeper.worked()
                self._sequences.apply(event, self._clock())
                if self._sequences.holds_back:
                    self._feed()
        if self._holds_drafts:
            self._send_held()  # the engine has finished a step and reads again

    def _take_load_failure(self, event: LoadFailed) -> None:
        if self.ready is None:
            self._keeper.fail()
            raise EngineError(event.reason) if event.may_recover else ModelLoadError(event.reason)
        log.error("%s", event.reason)
        if event.may_recover:  # neither the engine nor a sequence is at fault
            self._keeper.worked()
            self._sequences.fail_all(event.reason)

    def _become_ready(self, ready: Ready) -> None:
        self.ready = ready
        self._load = self._load.model_copy(update={"exactness": ready.exactness})
        log.info(
            "ready: %d slots, %d tokens of context (%d for one sequence), %s; %s",
            ready.n_slots,
            ready.n_ctx,
            ready.n_ctx_sequence,
            count(ready.n_threads, "thread"),
            ready.devices,
        )
        log.debug("texts: %s", ready.exactness.guarantee)
        if not self._stopped:
            self._keeper.ready()
            self.has_been_ready.set()
            if self._connected.names:
                self._send(self._connected)
            self.wake()
            self._feed()

    def _check_queue(self) -> None:
        """Raise QueueFullError if too many sequences wait. A sequence does not count as waiting while a slot
        is free for it.
        """
        assert self.ready
        n_waiting = len(self._sequences) - self.ready.n_slots
        if self._max_queue is not None and n_waiting >= self._max_queue:
            raise QueueFullError(
                f"all slots are busy and {max(n_waiting, 0)} requests wait: try again in a moment"
            )

    def _feed(self) -> None:
        """Send the sequences that are due, if the engine is ready."""
        if self.state is EngineState.READY:
            for submission in self._sequences.take_due():
                self._send(submission)

    def _send_held(self) -> None:
        self._holds_drafts = False
        for sequence in self._sequences:
            held, sequence.held_drafts = sequence.held_drafts, {}
            for draft in held.values():
                self.post_draft(draft)

    def _send(self, command: Command | Load) -> None:
        if self._keeper.child:
            self._keeper.child.send(command)


def _tell(event: DraftsDropped | Tune, backs: DraftReports) -> None:
    if isinstance(event, Tune):
        backs.tune(event)
    else:
        backs.count_stale(event.source, event.n_stale)
