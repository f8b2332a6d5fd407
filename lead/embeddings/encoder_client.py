"""The front's client of an encoder process: starts it, sends it texts, restarts it when it dies."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from lead.embeddings.encoder_messages import EncodedText, EncoderReady, LoadEncoder, Vectors
from lead.embeddings.encoder_process import EncoderProcess
from lead.embeddings.encoder_queue import EncoderQueue, WaitingText
from lead.engine.events import LoadFailed
from lead.engine_client.engine_state import EngineState
from lead.tokenizer.fair_queue import Client
from shared.errors import ModelLoadError, QueueFullError, UnavailableError
from shared.keeper import Keeper
from shared.supervisor import MAX_DEATHS_AT_START, Supervisor

log = logging.getLogger("embeddings")

_BEATS = 10
"""The number of signs of life that the process gives within --engine-timeout."""

_Waiter = asyncio.Future[bytes]


class EncoderClient:
    """A client of one encoder: `run` supervises the process until `stop`; `encode` may be called at any time
    from the same event loop.
    """

    def __init__(
        self,
        load: LoadEncoder,
        log_options: Sequence[str],
        *,
        timeout: float = 0.0,
        sleep_seconds: float = 0.0,
        on_sleep: Callable[[], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """timeout, sleep_seconds, on_sleep: as in `EngineClient`."""
        self._load = replace(load, heartbeat_seconds=timeout / _BEATS)
        self._log_options, self._timeout, self._clock = log_options, timeout, clock
        self._queue: EncoderQueue[_Waiter] = EncoderQueue()
        self._keeper: Keeper[EncoderProcess] = Keeper(
            f"the process of {load.model.name}",
            Supervisor.of_model(sleep_seconds),
            clock,
            is_busy=lambda: bool(self._queue),
            on_sleep=on_sleep,
        )
        self.ready: EncoderReady | None = None
        """The report of the process when it last became ready."""
        self.has_been_ready = asyncio.Event()
        self._busy_seconds = 0.0
        self._busy_since: float | None = None

    @property
    def state(self) -> EngineState:
        return EngineState[self._keeper.state.name]

    @property
    def n_waiting(self) -> int:
        """The number of texts without a vector so far."""
        return len(self._queue)

    @property
    def seconds(self) -> float:
        """The seconds for which the encoder has computed."""
        return self._busy_seconds + (0 if self._busy_since is None else self._clock() - self._busy_since)

    async def run(self) -> None:
        """Keep an encoder process running until it will not be started again; `state` has the reason.

        Raises ModelLoadError if no process ever becomes ready.
        """
        try:
            await self._keeper.run(self._start, self._talk)
        finally:
            self._fail_all(UnavailableError(self.state.value))
        if self.state is EngineState.FAILED:
            if self.ready is None:
                raise ModelLoadError(
                    f"{self._load.model} cannot compute embeddings: its process died "
                    f"{MAX_DEATHS_AT_START} times before it was ready. Read the log"
                )
            log.error("embeddings are off because the embedding process died too often. Restart the lead")

    def stop(self) -> None:
        self._keeper.stop()

    async def encode(self, client: Client, texts: Sequence[EncodedText]) -> list[bytes]:
        """Return the embeddings of texts as 32-bit floats.

        Cancelling the call drops texts that are not being computed yet. Raises NotServingError,
        QueueFullError, UnavailableError.
        """
        self._keeper.use()
        if not self.state.takes_requests:
            raise self.state.refusal()
        new = asyncio.get_running_loop().create_future
        waiting = [WaitingText(client, text, new()) for text in texts]
        for each in waiting:
            for removed in self._queue.push(each):
                _fail(removed.waiter, QueueFullError("too many texts wait for embeddings. Try again later"))
        self._feed()
        try:
            found: list[bytes] = await asyncio.gather(*(each.waiter for each in waiting))
            return found
        finally:
            for each in waiting:
                self._queue.drop(each)
                each.waiter.cancel()

    async def _start(self) -> EncoderProcess:
        return await EncoderProcess.start(self._log_options, needs_gpu=self._load.n_gpu_layers != 0)

    async def _talk(self, process: EncoderProcess) -> None:
        process.send(self._load)
        try:
            await self._keeper.listen(process.messages(), self._take, self._timeout)
        finally:
            had_work = self._queue.n_running > 0  # it has not died of texts that wait
            for text in self._queue.lost():
                _fail(text.waiter, UnavailableError("this text crashes the embedding process"))
            self._note_busy()
            self._keeper.lost(lambda: had_work)

    def _take(self, message: Any) -> None:
        match message:
            case EncoderReady():
                self._become_ready(message)
            case LoadFailed() if self.ready is None:
                self._keeper.fail()
                raise ModelLoadError(message.reason)
            case LoadFailed():
                log.error("%s", message.reason)
                self._fail_all(UnavailableError(message.reason))
            case list():
                self._keeper.worked()
                self._answer(message)
        self._feed()

    def _become_ready(self, ready: EncoderReady) -> None:
        self.ready, self._queue.together = ready, ready.together
        log.info(
            "ready: %s computes %s for texts of up to %d tokens",
            ready.name,
            "scores" if ready.ranks else f"embeddings of {ready.n_out} dimensions",
            ready.n_ctx,
        )
        self._keeper.ready()
        self.has_been_ready.set()

    def _answer(self, vectors: Vectors) -> None:
        for text, vector in zip(self._queue.answer(), vectors, strict=True):
            if not text.waiter.done():
                text.waiter.set_result(vector)

    def _feed(self) -> None:
        process, is_ready = self._keeper.child, self.state is EngineState.READY
        while process and is_ready and (batch := self._queue.take_batch()):
            process.send([each.text for each in batch])
        self._note_busy()

    def _note_busy(self) -> None:
        """Begin, end or continue measuring `seconds`."""
        self._busy_seconds, now = self.seconds, self._clock()
        self._busy_since = now if self._queue.n_running else None

    def _fail_all(self, error: Exception) -> None:
        for text in self._queue.clear():
            _fail(text.waiter, error)


def _fail(waiter: _Waiter, error: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(error)
