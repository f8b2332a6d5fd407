"""T(n) on this machine: the time of one `llama_decode` with n tokens in its batch."""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from lead.planning.pinned_process import PinnedProcess
from shared.cpus import parse_cpus
from shared.llama.model import Model
from shared.llama.span import Span
from shared.settings.model_options import ModelOptions

_N_CONTEXT = 128
"""Tokens before the measured ones: about half a short conversation."""


def step_times(model: Path, cores: str, widths: Sequence[int], n_repeats: int) -> dict[int, float]:
    """{n: seconds}, medians, measured in a process of its own on `cores`. Raises ConfigError."""
    pinned = parse_cpus(cores)
    with PinnedProcess(pinned) as process:
        return process.call(_measure, model, len(pinned), widths, n_repeats)


def _measure(path: Path, n_threads: int, widths: Sequence[int], n_repeats: int) -> dict[int, float]:
    """The widths take turns, so that a slower moment of the machine affects all of them."""
    model = Model(path, ModelOptions(ctx_size=512, parallel=1, batch_size=256, threads=n_threads))
    model.decode([Span(0, 0, list(range(1, 1 + _N_CONTEXT)), 1)])
    times: dict[int, list[float]] = {n: [] for n in widths}
    for repeat in range(n_repeats + 1):
        for n in widths:
            begun = time.perf_counter()
            model.decode([Span(0, _N_CONTEXT, list(range(1, 1 + n)), n)])
            if repeat:  # the first round warms up
                times[n].append(time.perf_counter() - begun)
            model.trim(0, _N_CONTEXT)
    return {n: statistics.median(seconds) for n, seconds in times.items()}
