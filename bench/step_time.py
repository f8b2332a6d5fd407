"""T(n) on this machine: the time of one `llama_decode` with n tokens in its batch.

    python -m bench.step_time --model big.gguf --cpus 0 --widths 1,2,3,4

A program of its own, because a process is pinned once and llama.cpp's threads with it. Prints JSON.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from shared import cpus
from shared.errors import ConfigError
from shared.llama.model import Model
from shared.llama.span import Span
from shared.settings.model_options import ModelOptions

_N_CONTEXT = 128
"""Tokens before the measured ones: about half a short conversation."""


def step_times(model: Path, cores: str, widths: Sequence[int], n_repeats: int) -> dict[int, float]:
    """{n: seconds}, medians, measured in a process of its own on `cores`. Raises ConfigError."""
    command = [sys.executable, "-m", "bench.step_time", "--model", str(model), "--cpus", cores]
    command += ["--widths", ",".join(map(str, widths)), "--repeats", str(n_repeats)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"measuring the steps of {model.name} failed: {done.stderr.strip()[-300:]}")
    return {int(n): seconds for n, seconds in json.loads(done.stdout).items()}


def main() -> None:
    """Measure the widths in turns, so that a slower moment of the machine affects all of them."""
    parser = argparse.ArgumentParser(prog="bench.step_time", description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--cpus", required=True)
    parser.add_argument("--widths", required=True)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    cores = cpus.parse_cpus(arguments.cpus)
    cpus.pin(cores)
    widths = [int(n) for n in arguments.widths.split(",")]
    options = ModelOptions(ctx_size=512, parallel=1, batch_size=256, threads=len(cores))
    times = _measure(Model(arguments.model, options), widths, arguments.repeats)
    print(json.dumps({n: statistics.median(seconds) for n, seconds in times.items()}))


def _measure(model: Model, widths: Sequence[int], n_repeats: int) -> dict[int, list[float]]:
    model.decode([Span(0, 0, list(range(1, 1 + _N_CONTEXT)), 1)])
    times: dict[int, list[float]] = {n: [] for n in widths}
    for repeat in range(n_repeats + 1):
        for n in widths:
            begun = time.perf_counter()
            model.decode([Span(0, _N_CONTEXT, list(range(1, 1 + n)), n)])
            if repeat:  # the first round warms up
                times[n].append(time.perf_counter() - begun)
            model.trim(0, _N_CONTEXT)
    return times


if __name__ == "__main__":
    main()
