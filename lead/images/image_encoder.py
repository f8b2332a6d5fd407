"""The front's client of the process that encodes images: starts it, kills it if it hangs, restarts it.

Encoded images are cached, within `--image-cache`, by their bytes, the projector and the limits. Nothing else
that clients send is kept.
"""

import asyncio
import hashlib
import hmac
import logging
import secrets
import signal
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn, Self

from pydantic import ValidationError

from lead.http.fair_lock import FairLock
from lead.http.images import EncodedImage
from lead.images.image_memory import SharedMemory, Stored
from lead.images.messages import (
    HEADER,
    MAX_JSON_BYTES,
    MAX_ROWS,
    Encoded,
    EncoderAlive,
    EncoderFailed,
    EncoderOptions,
    EncoderReply,
    ImageRefused,
    ProjectorReady,
    replies,
)
from lead.tokenizer.fair_queue import Client
from shared.errors import ModelLoadError, QueueFullError, RequestError, UnavailableError, UnsupportedError
from shared.image_span import ImageMemory, ImageSpan, row_identities
from shared.keeper import ConnectedChild, Keeper
from shared.model_files.projector_file import too_many_rows
from shared.python_child import child_command, child_environment
from shared.sandbox import NO_GPU, without_secrets
from shared.supervisor import MAX_DEATHS_AT_START, ChildState, Supervisor

log = logging.getLogger("lead")

_STOP_SECONDS = 2.0
_HUNG_SECONDS = 5.0
"""The silence after which the process is stopped: it should give a sign of life each second."""
_START_SECONDS = 60.0
"""The maximum time that requests wait until another process is ready."""
_FLOAT_BYTES = 4
_MAX_WAITING_BYTES = 128 << 20
"""The maximum number of bytes of all images that wait to be encoded."""
_MAX_KILLERS = 1024
_ENVIRONMENT = {"GGML_NO_BACKTRACE": "1", "OPENBLAS_NUM_THREADS": "1"}
_AWAY = "images cannot be read at the moment: try again in a moment"
_UNREADABLE = "messages: an image cannot be read"


class ImageEncoderProcess(ConnectedChild):
    """A running process. Exists from `start` to `end`. Its replies arrive in order."""

    @classmethod
    async def start(cls, options: EncoderOptions, log_options: Sequence[str]) -> Self:
        """Start a process; raises OSError."""
        module, given = "lead.images.image_encoder_process", options.model_dump_json()
        return await cls.connected(
            lambda socket: child_command(module, str(socket), log_options[0], given, *log_options[1:]),
            stop_seconds=_STOP_SECONDS,
            env=without_secrets(child_environment()) | _ENVIRONMENT | ({} if options.offload else NO_GPU),
        )

    def tell_to_end(self) -> None:
        """Ask the process to end; it may be in the middle of an image."""
        self.kill()

    async def ask(self, data: bytes) -> None:
        """Send an image file; raises OSError."""
        self._writer.write(HEADER.pack(0, len(data)) + data)
        await self._writer.drain()

    async def reply(self, seconds: float, n_embd: int = 0) -> tuple[EncoderReply, bytes]:
        """Return the next reply, and the bytes that follow it.

        Raises TimeoutError, EOFError and OSError if there is none, ValueError if it is invalid.
        """
        async with asyncio.timeout(seconds):
            n_json, n_rows_bytes = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            if n_json > MAX_JSON_BYTES or n_rows_bytes > MAX_ROWS * n_embd * _FLOAT_BYTES:
                raise ValueError("a reply is too long")
            reply = replies.validate_json(await self._reader.readexactly(n_json))
            rows = await self._reader.readexactly(n_rows_bytes)
        if len(rows) != (reply.n_rows * n_embd * _FLOAT_BYTES if isinstance(reply, Encoded) else 0):
            raise ValueError("the length of a reply differs from its header")
        return reply, rows


@dataclass(frozen=True, eq=False)
class _KeptImage(EncodedImage):
    """A cached image, with the place of its embeddings, which is freed when this object is deleted."""

    stored: Stored = field(default_factory=lambda: Stored(0, 0))


class ImageEncoder:
    """A `lead.http.images.ImageReader` that encodes images in a separate process, while `run` is running."""

    def __init__(
        self,
        options: EncoderOptions,
        *,
        max_images: int,
        cache_bytes: int,
        max_whole: int | None = None,
        log_options: Sequence[str] = ("info",),
    ) -> None:
        """max_whole: the maximum number of rows that are decoded at once (`--ubatch-size`); None: no maximum.

        Raises ConfigError.
        """
        self.max_images = max_images
        self._options, self._max_whole, self._log_options = options, max_whole, log_options
        self._keeper: Keeper[ImageEncoderProcess] = Keeper(
            "the image process",
            Supervisor(max_deaths_at_start=MAX_DEATHS_AT_START),
            level=logging.WARNING,
        )
        self._memory = SharedMemory(cache_bytes)  # of embeddings
        self._secret = secrets.token_bytes(16)  # makes markers unguessable
        self._state = _state_of(options)  # of the files and limits: part of the cache's keys
        self._first: asyncio.Future[ProjectorReady] | None = None  # of the first process that is ready
        self._failure = ""  # why the last process did not become ready, although an earlier process did
        self._kept: OrderedDict[str, _KeptImage] = OrderedDict()  # by key, least recently used first
        self._encoding: dict[str, asyncio.Task[_KeptImage]] = {}  # by key
        self._n_waiting_bytes = 0  # of image files
        self._killers: OrderedDict[str, str] = OrderedDict()  # key → how the process died of the image
        self._turns = FairLock()  # the process encodes for clients in turn
        self.n_encoded = 0
        """The number of images that were encoded because they were not in the cache."""

    async def run(self) -> None:
        """Keep a process running, until cancelled. Raises ModelLoadError if no process can become ready."""
        try:
            await self._keep_one()
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error if isinstance(error, Exception) else ModelLoadError("ended"))
                self._ready.exception()  # marks it as retrieved
            raise
        finally:
            self._keeper.stop()
            for task in self._encoding.values():
                task.cancel()

    async def memory(self) -> ImageMemory:
        ready = await asyncio.shield(self._ready)
        return ImageMemory(
            descriptor=self._memory.descriptor, n_bytes=self._memory.n_bytes, max_whole=ready.max_whole
        )

    async def read(self, client: Client, data: bytes) -> EncodedImage:
        digest = await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())
        key = hashlib.sha256(f"{digest} {self._state}".encode()).hexdigest()
        if kept := self._kept.get(key):
            self._kept.move_to_end(key)
            return kept
        if reason := self._killers.get(key):
            raise RequestError(reason, "messages")
        if key not in self._encoding:
            if self._n_waiting_bytes + len(data) > _MAX_WAITING_BYTES:
                raise QueueFullError("too many images wait to be read: try again in a moment")
            self._n_waiting_bytes += len(data)
            self._encoding[key] = task = asyncio.ensure_future(self._encode(client, key, data))
            task.add_done_callback(lambda _: self._forget(key, len(data)))
        return await asyncio.shield(self._encoding[key])

    @property
    def _ready(self) -> "asyncio.Future[ProjectorReady]":
        """The report of the first process that was ready."""
        if self._first is None:
            self._first = asyncio.get_running_loop().create_future()
        return self._first

    def _forget(self, key: str, n_bytes: int) -> None:
        self._n_waiting_bytes -= n_bytes
        task = self._encoding.pop(key)
        if not task.cancelled():
            task.exception()  # the caller may have left; this marks it as retrieved

    # The process

    async def _keep_one(self) -> NoReturn:
        """Keep a process running. Raises ModelLoadError."""
        await self._keeper.run(
            lambda: ImageEncoderProcess.start(self._options, self._log_options), self._live
        )
        raise ModelLoadError(
            f"--mmproj: the image process died {MAX_DEATHS_AT_START} times before it was ready. Read the log"
        )

    async def _live(self, process: ImageEncoderProcess) -> None:
        try:
            if await self._begin(process):
                await asyncio.shield(process.ended)
        finally:
            self._keeper.lost(self._ready.done)

    async def _begin(self, process: ImageEncoderProcess) -> bool:
        """Wait until the process has loaded the projector; returns whether it has. Raises ModelLoadError."""
        try:
            reply, _ = await process.reply(_START_SECONDS * 10)
        except (OSError, EOFError, TimeoutError, ValueError):
            if self._ready.done():
                self._failure = _AWAY
            return False
        if isinstance(reply, ProjectorReady):
            if not self._ready.done():
                self._check(reply)
                self._ready.set_result(reply)
            self._failure = ""
            self._keeper.ready()
            self._keeper.worked()
            return True
        if isinstance(reply, EncoderFailed):
            if not self._ready.done():
                raise ModelLoadError(reply.reason)
            log.error("%s", reply.reason)
            self._failure = reply.reason
        return False

    def _check(self, ready: ProjectorReady) -> None:
        if self._max_whole is not None and ready.max_whole > self._max_whole:
            raise ModelLoadError(too_many_rows(ready.max_whole, self._max_whole))

    # Images

    async def _encode(self, client: Client, key: str, data: bytes) -> _KeptImage:
        async with self._turns.hold(client):
            process = await self._next_process()
            ready = await self._ready
            try:
                reply, rows = await self._answer(process, data, ready.n_embd)
            except (OSError, EOFError):  # TimeoutError among them: it is stopped, or the machine swaps
                raise await self._died(process, key) from None
            except ValueError as error:
                self._keeper.drop(process)
                log.warning("the image process sent an invalid reply: %s", _first_line(error))
                raise RequestError(f"{_UNREADABLE}: it crashes the image process", "messages") from None
        if isinstance(reply, ImageRefused):
            raise RequestError(reply.reason, "messages")
        if isinstance(reply, EncoderFailed):
            raise UnsupportedError(reply.reason)
        assert isinstance(reply, Encoded)
        self.n_encoded += 1
        return self._keep(key, reply, rows, ready.n_vocab)

    async def _next_process(self) -> ImageEncoderProcess:
        try:
            async with asyncio.timeout(_START_SECONDS):
                while self._keeper.state is not ChildState.READY or self._keeper.child is None:
                    if self._failure:
                        raise UnavailableError(self._failure)
                    await self._keeper.wait()
        except TimeoutError:
            raise UnavailableError(_AWAY) from None
        return self._keeper.child

    async def _answer(
        self, process: ImageEncoderProcess, data: bytes, n_embd: int
    ) -> tuple[EncoderReply, bytes]:
        await process.ask(data)
        while True:
            reply, rows = await process.reply(_HUNG_SECONDS, n_embd)
            if not isinstance(reply, EncoderAlive):
                return reply, rows

    async def _died(self, process: ImageEncoderProcess, key: str) -> Exception:
        """Return the error for the client whose image was being encoded when the process died."""
        self._keeper.drop(process)
        status = await asyncio.shield(process.ended)
        if status == -signal.SIGKILL:
            return UnavailableError("the image process was killed: try again in a moment")
        self._note_killer(
            key,
            f"{_UNREADABLE}: it takes too much time"
            if status == -signal.SIGPROF
            else f"{_UNREADABLE}: it needs too much memory, or is damaged",
        )
        return RequestError(self._killers[key], "messages")

    def _note_killer(self, key: str, reason: str) -> None:
        """Record that this image killed the process; it is refused at once next time."""
        self._killers[key] = reason
        if len(self._killers) > _MAX_KILLERS:
            self._killers.popitem(last=False)

    def _keep(self, key: str, encoded: Encoded, rows: bytes, n_vocab: int) -> _KeptImage:
        stored = self._store(rows)
        # in the prompt: the model's tokens around an image, and an identity for each of its rows
        tokens, spans, offset = array("i"), list[ImageSpan](), stored.offset
        for i, chunk in enumerate(encoded.chunks):
            if chunk.n_rows:
                own = f"{key}-{i}"
                spans.append(
                    ImageSpan(
                        start=len(tokens),
                        n_rows=chunk.n_rows,
                        n_positions=chunk.n_positions,
                        key=own,
                        width=chunk.width,
                        whole=chunk.whole,
                        offset=offset,
                    )
                )
                offset += len(rows) * chunk.n_rows // encoded.n_rows
                tokens += row_identities(own, chunk.n_rows)
            tokens.extend(each for each in chunk.tokens if each < n_vocab)
        kept = _KeptImage(self._marker(key), tokens, tuple(spans), stored)
        self._kept[key] = kept
        return kept

    def _store(self, rows: bytes) -> Stored:
        """Store the rows, dropping the oldest images if needed. Raises RequestError, QueueFullError."""
        stored = self._memory.store(rows)
        while stored is None and self._kept:
            self._kept.popitem(last=False)
            stored = self._memory.store(rows)
        if stored is not None:
            return stored
        if len(rows) > self._memory.n_bytes:
            raise RequestError(f"{_UNREADABLE}: it is larger than --image-cache", "messages")
        raise QueueFullError("images of running requests fill --image-cache: try again in a moment")

    def _marker(self, key: str) -> str:
        """Return a word that only this process can make: no client can write it."""
        return f"image{hmac.digest(self._secret, key.encode(), 'sha256').hex()[:32]}"


def _state_of(options: EncoderOptions) -> str:
    """Return the state of the files and limits that determine the rows of an image."""
    try:
        file = options.projector.stat()
    except OSError:
        return ""  # the process says what is wrong with it
    how = f"{options.max_tokens} {options.flash_attn} {options.offload}"
    return f"{file.st_size} {file.st_mtime_ns} {how}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] if not isinstance(error, ValidationError) else "no known message"
