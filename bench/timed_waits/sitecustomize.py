"""With this folder on PYTHONPATH decodes of the lead's engine and of backs take as long as a table says.

LEAD_STEP_MS and BACK_STEP_MS are JSON objects: number of tokens → milliseconds. The models have to be faster.
A program that waits takes no time from the others, as if it had a machine of its own.
"""

import json
import os
import sys
import time
from typing import Any

_SLICE_SECONDS = 0.0003
_ENGINE = "lead.engine"


def _wait_in_decodes(step_ms: str) -> None:
    from lead.simulation.machine import StepTable  # noqa: PLC0415 - only where models decode
    from shared.errors import DecodeAbortedError  # noqa: PLC0415 - only where models decode
    from shared.llama.abort_callback import ContextInterrupt  # noqa: PLC0415 - only where models decode
    from shared.llama.model import Model  # noqa: PLC0415 - only where models decode

    points = sorted((int(n), ms / 1000) for n, ms in json.loads(step_ms).items())
    table = StepTable("waits", tuple(points))
    begin, clear, interrupted = Model._begin, ContextInterrupt.clear, ContextInterrupt.set  # noqa: SLF001 - the call of llama.cpp
    stopped: set[int] = set()

    def timed_begin(self: Model, together: Any) -> None:
        until = time.perf_counter() + table.seconds(sum(part.size for part in together))
        begin(self, together)
        while (left := until - time.perf_counter()) > 0:
            if stopped:
                raise DecodeAbortedError("interrupted while it waited")
            time.sleep(min(left, _SLICE_SECONDS))

    def timed_set(self: ContextInterrupt) -> None:
        stopped.add(id(self))
        interrupted(self)

    def timed_clear(self: ContextInterrupt) -> None:
        stopped.discard(id(self))
        clear(self)

    setattr(Model, "_begin", timed_begin)  # noqa: B010 - mypy allows no other way
    setattr(ContextInterrupt, "set", timed_set)  # noqa: B010
    setattr(ContextInterrupt, "clear", timed_clear)  # noqa: B010


if _ENGINE in sys.orig_argv and "LEAD_STEP_MS" in os.environ:
    _wait_in_decodes(os.environ["LEAD_STEP_MS"])
elif "back" in sys.orig_argv and "BACK_STEP_MS" in os.environ:
    _wait_in_decodes(os.environ["BACK_STEP_MS"])
