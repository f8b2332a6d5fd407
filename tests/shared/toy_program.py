"""Work for a sandbox. Its client says what it does."""

import contextlib
import os
import resource
import time
from dataclasses import dataclass

from shared.errors import ModelLoadError
from shared.sandbox import Sandbox

PLAIN, OTHER = b"p", b"o"


@dataclass
class ToyProgram:
    fails: bool = False
    seconds: float = 0.0

    def load(self):
        time.sleep(self.seconds)
        if self.fails:
            raise ModelLoadError("no such file")
        prepared = []
        return {kind: ToyHandler(kind, prepared) for kind in (PLAIN, OTHER)}


class ToyHandler:
    def __init__(self, kind, prepared):
        self._kind = kind
        self._prepared = prepared

    def prepare(self):
        self._prepared.append(self._kind)

    def warm_up(self):
        pass

    def do(self, connection, limits):
        while True:
            match connection.recv():
                case "end":
                    return
                case "describe":
                    core, data = (
                        resource.getrlimit(n)[0] for n in (resource.RLIMIT_CORE, resource.RLIMIT_DATA)
                    )
                    connection.send((os.getpid(), dict(os.environ), core, data))
                case "what is prepared":
                    connection.send(self._prepared)
                case "compute":
                    with limits.time(0.05):
                        while True:
                            pass
                case "sleep":
                    time.sleep(600)
                case ("signal", number):
                    os.kill(os.getpid(), number)
                case ("allocate", n):
                    data = b"x" * n
                    connection.send(len(data))


def toy(**fields):
    return contextlib.closing(Sandbox(ToyProgram(**fields)))
