"""The process that encodes images: `python -m lead.images.image_encoder_process FD LEVEL OPTIONS`.

On a CPU it opens nothing once the projector is loaded: no file, no connection.
"""

import contextlib
import resource
import socket
import sys
import threading
from contextlib import AbstractContextManager

from lead.images.image_header import ImageLimits, check_header
from lead.images.messages import (
    HEADER,
    Encoded,
    EncoderAlive,
    EncoderFailed,
    EncoderOptions,
    ImageRefused,
    ProjectorReady,
    framed,
)
from lead.images.projector import Projector
from shared.errors import LibraryError, ModelLoadError, RequestError
from shared.exits import end_with_parent_only
from shared.logs import configure_logging
from shared.sandbox import WorkerLimits

_BEAT_SECONDS = 1.0


def main() -> None:
    """Load the projector, then encode until the front closes the socket."""
    end_with_parent_only()
    descriptor, level, given = sys.argv[1:4]
    configure_logging(level, as_json="json" in sys.argv[4:])  # type: ignore[arg-type]  # the front passes on its own valid level
    options = EncoderOptions.model_validate_json(given)
    connection = socket.socket(fileno=int(descriptor))
    try:
        projector = Projector(
            options.model,
            options.projector,
            n_threads=options.n_threads,
            max_tokens=options.max_tokens,
            offload=options.offload,
            flash_attn=options.flash_attn,
        )
        ready = ProjectorReady(
            n_embd=projector.n_embd, n_vocab=projector.n_vocab, max_whole=projector.max_whole
        )
    except (ModelLoadError, LibraryError, RequestError) as error:
        connection.sendall(framed(EncoderFailed(reason=str(error))))
        return
    limits = WorkerLimits()
    if not options.offload:  # a driver opens and writes what it needs when it needs it
        _forbid_files()
    connection.sendall(framed(ready))
    ImageServer(connection, projector, options, limits).run()


class ImageServer:
    """Encodes images, one at a time."""

    def __init__(
        self, connection: socket.socket, projector: Projector, options: EncoderOptions, limits: WorkerLimits
    ) -> None:
        self._connection, self._projector, self._options = connection, projector, options
        self._limits = limits
        self._sending = threading.Lock()

    def run(self) -> None:
        """Serve until the other end is closed."""
        while header := self._receive(HEADER.size):
            data = self._receive(HEADER.unpack(header)[1])
            ended = threading.Event()
            beat = threading.Thread(target=self._beat, args=(ended,), daemon=True)
            beat.start()
            try:
                reply = self._answer(data)
            finally:
                ended.set()
                beat.join()
            self._send(reply)

    def _answer(self, data: bytes) -> bytes:
        options, limits = self._options, self._limits
        try:
            with self._memory():
                with limits.time(options.decode_seconds):
                    check_header(data, ImageLimits())
                    bitmap = self._projector.decode(data)
                with bitmap, limits.time(options.encode_seconds * options.n_threads):
                    chunks, rows = self._projector.encode(bitmap)
            return framed(Encoded(chunks=chunks), rows)
        except RequestError as error:
            return framed(ImageRefused(reason=str(error)))
        except MemoryError:
            return framed(ImageRefused(reason="messages: an image takes too much memory"))
        except ModelLoadError as error:
            return framed(EncoderFailed(reason=str(error)))

    def _memory(self) -> AbstractContextManager[None]:
        """Return a context that limits memory; not with a GPU, whose driver's mappings would count, too."""
        if self._options.offload:
            return contextlib.nullcontext()
        return self._limits.memory(self._options.task_bytes)

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(_BEAT_SECONDS):
            self._send(framed(EncoderAlive()))

    def _send(self, message: bytes) -> None:
        with self._sending:
            self._connection.sendall(message)

    def _receive(self, n: int) -> bytes:
        """Receive `n` bytes; empty if the front has closed its end."""
        data = bytearray()
        while len(data) < n and (more := self._connection.recv(min(n - len(data), 1 << 20))):
            data += more
        return bytes(data) if len(data) == n else b""


def _forbid_files() -> None:
    """Forbid this process to open or write anything, and to leave a dump of its memory."""
    for each in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
        resource.setrlimit(each, (0, 0))


if __name__ == "__main__":
    main()
