"""The encoder process: loads a model, and computes batches of texts as they arrive."""

import os
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any, cast

from lead.embeddings.encoder import VectorEncoder
from lead.embeddings.encoder_messages import LoadEncoder
from lead.engine.events import LoadFailed
from lead.engine.heartbeat import Heartbeat
from lead.tokenizer.jobs import decode, encode
from shared.errors import ConfigError
from shared.logs import LogLevel, configure_logging


class _FrontPipe:
    """The pipe to the front. Any thread may send."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, message: object) -> None:
        with self._sending:
            self._connection.send_bytes(encode(message))

    def receive(self) -> Any:
        return decode(self._connection.recv_bytes())


def main() -> None:
    """Load the model that the front names first, then answer each batch, until the front closes the pipe.

    If the model cannot be loaded, sends `LoadFailed` and ends.
    """
    configure_logging(cast(LogLevel, sys.argv[2]), as_json=sys.argv[3:] == ["json"])
    pipe = _FrontPipe(Connection(int(sys.argv[1])))
    try:
        load = pipe.receive()
        assert isinstance(load, LoadEncoder)
        os.nice(load.nice)
        if load.heartbeat_seconds:
            Heartbeat(load.heartbeat_seconds, pipe.send).start()
        try:
            encoder = VectorEncoder(load)
        except ConfigError as error:
            pipe.send(LoadFailed(reason=str(error)))
            return
        pipe.send(encoder.about)
        while True:
            pipe.send(encoder.encode(pipe.receive()))
    except (EOFError, OSError):  # the front needs it no more
        pass


if __name__ == "__main__":
    main()
