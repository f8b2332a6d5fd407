"""The front's side of the engine: starts the process, talks to it, starts it again when it dies."""

import asyncio
import contextlib
import enum
import logging
import random
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from lead.engine.commands import (
    Cancel,
    Command,
    Explain,
    Load,
    PolicyName,
    PostDraft,
    SetBacks,
    SetPolicy,
    Submit,
    encode_command,
)
from lead.engine.events import (
    DraftsDropped,
    Event,
    Explained,
    LoadFailed,
    Ready,
    SequenceEvent,
    Tuned,
    decode_event,
)
from shared.backoff import jittered_delays
from shared.descriptors import SpareDescriptors
from shared.errors import ModelLoadError, UnavailableError
from shared.logs import LogLevel
from shared.protocol import Tune

log = logging.getLogger("lead")

_MOST_UNSENT_BYTES = 1 << 16
"""While the engine has more than this to read, drafts are withheld, and only the newest are sent later."""
_MOST_EVENT_BYTES = 1 << 20
_STOP_SECONDS = 10.0
"""How long the engine may take for its last step before it is killed."""
_EXPLAIN_SECONDS = 10.0
"""The engine replies between two steps; with a long prompt on a slow machine a step may take this long."""
_N_SPARE = 8
"""Descriptors held back for starting an engine: the pipe to it, and what starting a process takes."""
RETRY_AFTER_SECONDS = 5
"""The Retry-After sent while the engine is not available."""


class EngineState(enum.Enum):
    """STARTING → READY → RESTARTING → READY …; FAILED and STOPPED are final."""

    STARTING = "the model is being loaded"
    READY = "ready"
    RESTARTING = "the engine has died and is being started again"
    FAILED = "the model cannot be loaded"
    STOPPED = "the server is shutting down"


class SequenceListener(Protocol):
    """Where events about sequences go (`lead.generation.sequences.Sequences`)."""

    def apply(self, event: SequenceEvent, now: float) -> None:
        """Something happened to one sequence."""

    def fail_all(self, reason: str) -> None:
        """The engine has died."""


class BackListener(Protocol):
    """Where events about backs go (`lead.backs.registry.Backs`)."""

    def count_stale(self, name: str, n: int) -> None:
        """Drafts of a back came too late."""

    def tune(self, tune: Tune) -> None:
        """What all backs should draft from now on."""


class EngineClient:
    """`run` supervises until `stop`; the other methods may be called at any time from the same event loop."""

    def __init__(
        self,
        load: Load,
        log_level: LogLevel,
        *,
        log_json: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` returns seconds; times of events are measured with it."""
        self._load = load
        self._log_options = [log_level, *(["json"] if log_json else [])]
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._held_drafts: dict[tuple[str, str], PostDraft] = {}
        self._connected = SetBacks(names=[])
        self._explanation: asyncio.Future[dict[str, Any] | None] | None = None
        self._spare = SpareDescriptors(_N_SPARE)
        self._stopping = asyncio.Event()
        self.state = EngineState.STARTING
        self.ready: Ready | None = None
        """The engine's last `Ready`."""
        self.has_been_ready = asyncio.Event()
        """Set when the engine is ready for the first time, and never cleared."""

    @property
    def _stopped(self) -> bool:
        return self.state is EngineState.STOPPED

    @property
    def pid(self) -> int | None:
        """The engine's process id while it runs."""
        return self._process.pid if self._process else None

    async def run(self, sequences: SequenceListener, backs: BackListener) -> None:
        """Keep an engine running and pass its events to the listeners.

        Raises ModelLoadError if the first one cannot load the model.
        """
        delays = jittered_delays(0.2, 30.0, random.Random())  # noqa: S311 - jitter is no secret
        while not self._stopped:
            try:
                was_ready = await self._run_once(sequences, backs)
            except OSError as error:  # no descriptors, memory or processes: there may be some later
                log.error("the engine cannot be started: %s", error)  # noqa: TRY400 - no fault of the program
                was_ready = False
            if self._stopped:
                return
            if was_ready:
                delays = jittered_delays(0.2, 30.0, random.Random())  # noqa: S311 - as above
            self.state = EngineState.RESTARTING
            sequences.fail_all("the engine has died; it is being started again")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(next(delays)):
                    await self._stopping.wait()

    async def stop(self) -> None:
        """Let the engine finish its step and exit; it is killed if that takes too long."""
        self.state = EngineState.STOPPED
        self._stopping.set()
        if self._writer:
            self._writer.close()
        if self._process is None:
            return
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._kill()

    def submit(self, request: Submit) -> None:
        """Start a sequence; raises UnavailableError."""
        if self.state is not EngineState.READY:
            raise UnavailableError(f"{self.state.value}: try again in a moment")
        self._send(request)

    def cancel(self, sequence_id: str) -> None:
        """Stop a sequence within a step."""
        if self.state is EngineState.READY:
            self._send(Cancel(sequence=sequence_id))

    def post_draft(self, draft: PostDraft) -> None:
        """Send a draft; one that the engine cannot read yet is replaced by the next of the same source."""
        if self.state is not EngineState.READY or self._writer is None:
            return
        if self._writer.transport.get_write_buffer_size() > _MOST_UNSENT_BYTES:
            self._held_drafts[draft.sequence, draft.source] = draft
        else:
            self._send(draft)

    def connect(self, names: list[str]) -> None:
        """Set the connected backs; a restarted engine is informed again."""
        self._connected = SetBacks(names=names)
        if self.state is EngineState.READY:
            self._send(self._connected)

    def set_policy(self, policy: PolicyName, depth: int) -> None:
        """Change the policy for the depth of drafts, also for a restarted engine."""
        self._load = self._load.model_copy(update={"policy": policy, "depth": depth})
        if self.state is EngineState.READY:
            self._send(SetPolicy(policy=policy, depth=depth))

    async def explain(self) -> dict[str, Any] | None:
        """What the planner has learned and done; None if the engine does not reply in time."""
        if self.state is not EngineState.READY:
            return None
        if self._explanation is None:  # one reply serves all callers, so that no client can flood the pipe
            self._explanation = asyncio.get_running_loop().create_future()
            self._send(Explain())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXPLAIN_SECONDS):
                return await asyncio.shield(self._explanation)
        return None

    async def _run_once(self, sequences: SequenceListener, backs: BackListener) -> bool:
        """Run one engine process to its end; returns whether it became ready."""
        with self._spare.released():
            ours, self._process = await self._start()
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=_MOST_EVENT_BYTES)
        was_ready = False
        try:
            if self._stopped:  # while the process was being started
                self._writer.close()
            else:
                self._send(self._load)
            async for line in reader:
                if not line.endswith(b"\n"):
                    break  # the engine was killed in the middle of an event
                self._take(decode_event(line), sequences, backs)
                was_ready = was_ready or self.state is EngineState.READY
        except ConnectionResetError:
            pass  # what reading from a killed engine raises
        finally:
            await self._clean_up()
        return was_ready

    async def _start(self) -> tuple[socket.socket, asyncio.subprocess.Process]:
        """An engine process and the front's end of the pipe to it; raises OSError."""
        ours, theirs = socket.socketpair()
        with theirs:
            arguments = ["-m", "lead.engine", str(theirs.fileno()), *self._log_options]
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, *arguments, pass_fds=[theirs.fileno()], stdin=asyncio.subprocess.DEVNULL
                )
            except BaseException:
                ours.close()
                raise
        return ours, process

    async def _clean_up(self) -> None:
        if self._writer:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
        self._writer = None
        self._held_drafts.clear()
        self._explained(None)
        if self._process:
            code = await self._process.wait()
            if not self._stopped:
                log.error("the engine (pid %d) ended with status %d", self._process.pid, code)
        self._process = None

    def _take(self, event: Event, sequences: SequenceListener, backs: BackListener) -> None:
        match event:
            case DraftsDropped():
                backs.count_stale(event.source, event.n_stale)
            case Tuned():
                backs.tune(Tune(n_ahead=event.n_ahead, min_confidence=event.min_confidence))
            case Ready():
                self._become_ready(event)
            case Explained():
                self._explained(event.report)
            case LoadFailed():
                if self.ready is None:
                    self.state = EngineState.FAILED
                    raise ModelLoadError(event.reason)
                log.error("%s", event.reason)
            case _:
                sequences.apply(event, self._clock())
        self._send_held()  # the engine has finished a step and reads again

    def _become_ready(self, ready: Ready) -> None:
        self.ready = ready
        log.info(
            "ready: %d slots, %d tokens of context (%d for one sequence), %d threads",
            ready.n_slots,
            ready.n_ctx,
            ready.n_ctx_sequence,
            self._load.options.threads,
        )
        if ready.speculates and not ready.exact:
            log.info(
                "on this machine the last bits of the model's logits depend on the number of tokens in a "
                "batch: a draft may decide between two almost equally likely tokens"
            )
        if not self._stopped:
            self.state = EngineState.READY
            self.has_been_ready.set()
            if self._connected.names:
                self._send(self._connected)

    def _explained(self, report: dict[str, Any] | None) -> None:
        if self._explanation is not None:
            self._explanation.set_result(report)
            self._explanation = None

    def _send_held(self) -> None:
        held, self._held_drafts = self._held_drafts, {}
        for draft in held.values():
            self.post_draft(draft)

    def _send(self, command: Command) -> None:
        if self._writer:
            self._writer.write(encode_command(command))

    def _kill(self) -> None:
        if self._process and self._process.returncode is None:
            self._process.kill()
