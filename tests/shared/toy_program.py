"""Work for a sandbox that does what its client says."""

import contextlib
import os
import resource
import sys
import time
from dataclasses import dataclass

from shared.errors import ModelLoadError
from shared.sandbox import Sandbox


@dataclass
class ToyProgram:
    fails: bool = False
    seconds: float = 0.0
    seconds_in_idle_time: float = 0.0

    def load(self):
        is_idle_class = sys.platform == "linux" and os.sched_getscheduler(0) == os.SCHED_IDLE
        time.sleep(self.seconds_in_idle_time if is_idle_class else self.seconds)
        if self.fails:
            raise ModelLoadError("no such file")
        return ToyHandler()


class ToyHandler:
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
