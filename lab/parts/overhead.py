"""Measures the microseconds of a step outside the model, by vocabulary, sampling and drafts.

The real engine runs between a stand-in model that returns prepared logits and a stand-in front process, whose
time is subtracted. The rest is sampling, the pipe to the front, and the scheduler, speculation and
verification.
"""

import argparse
import contextlib
import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from lab.parts import report
from lab.parts.replay import SEQUENCE, ReplayFront, ReplayTarget, Rows, Shares, TimedSampler
from lead.engine.commands import SetBacks, Submit
from lead.engine.drafters.lookup import NgramDrafter
from lead.engine.engine import Engine
from lead.engine.engine_limits import EngineLimits
from lead.engine.loop import Loop
from lead.engine.speculation.batching import LikeliestFirst
from lead.engine.speculation.manager import SpeculationManager
from shared.sampling.filters import NativeFilters
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler, needs_filters
from shared.step_cost import StepCost

VOCABULARIES = (4_096, 32_000, 128_000)
SAMPLINGS = {
    "temperature 0": SamplingParameters(seed=1, temperature=0),
    "default": SamplingParameters(seed=1),
    "temperature 1, untruncated": SamplingParameters(seed=1, temperature=1, top_k=0, top_p=1, min_p=0),
    "default, penalties": SamplingParameters(seed=1, repeat_penalty=1.1, frequency_penalty=0.1),
}
DRAFTS = {"none": None, "3 of 4 right": 0.75, "all right": 1.0}
DEPTH = 4
BOUNDS = {4_096: 300.0, 128_000: 1000.0}
"""Upper bounds in microseconds per step, with the samplings in `_BOUNDED`."""
_BOUNDED = {"temperature 0", "default"}

_N_PROMPT = 256
_N_BATCH = 512
_N_WARM_UP = 20
_COLUMNS = {
    "n_vocab": ("vocabulary", ",d"),
    "sampling": ("sampling", ""),
    "drafts": ("drafts", ""),
    "n_rows": ("rows chosen", ".2f"),
    "step_us": ("step µs", ".0f"),
    "high_us": ("9 in 10 below", ".0f"),
    "sampling_us": ("sampling", ".0f"),
    "pipe_us": ("pipe", ".0f"),
    "engine_us": ("the rest", ".0f"),
    "bound_us": ("bound", ".0f"),
}


def main(arguments: Sequence[str]) -> None:
    """Measure every case, print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(prog="bench overhead", description=__doc__)
    report.add_options(parser)
    options = parser.parse_args(arguments)
    n_steps = 100 if options.quick else 1000
    rows = [measure(*case, n_steps) for case in itertools.product(VOCABULARIES, SAMPLINGS, DRAFTS)]
    within = all(row["bound_us"] is None or row["step_us"] <= row["bound_us"] for row in rows)
    report.show(f"A step outside the model, {n_steps} steps each, depth {DEPTH}", rows, _COLUMNS)
    report.finish("overhead", rows, options, within_bounds=within)


def measure(n_vocab: int, sampling: str, drafts: str, n_steps: int) -> dict[str, Any]:
    """Return a case after `n_steps` steps, with the medians of its costs in microseconds.

    n_rows: the average number of rows of logits from which a step chose a token.
    """
    with _running(n_vocab, sampling, drafts, n_steps) as (loop, front, shares):
        steps = [_step(loop, shares) for _ in range(n_steps + _N_WARM_UP)][_N_WARM_UP:]
        n_rows = (front.n_committed - _N_PROMPT) / (n_steps + _N_WARM_UP)
    in_all = [1e6 * seconds for seconds, _ in steps]
    rest = [1e6 * (seconds - shares.sampling - shares.pipe) for seconds, shares in steps]
    return {
        "n_vocab": n_vocab,
        "sampling": sampling,
        "drafts": drafts,
        "n_rows": n_rows,
        "step_us": statistics.median(in_all),
        "high_us": statistics.quantiles(in_all, n=10)[-1],
        "sampling_us": statistics.median(1e6 * shares.sampling for _, shares in steps),
        "pipe_us": statistics.median(1e6 * shares.pipe for _, shares in steps),
        "engine_us": statistics.median(rest),
        "bound_us": BOUNDS.get(n_vocab) if sampling in _BOUNDED else None,
    }


@contextlib.contextmanager
def _running(
    n_vocab: int, sampling: str, drafts: str, n_steps: int
) -> Iterator[tuple[Loop, ReplayFront, Shares]]:
    """Yield an engine's loop, to which a request was sent, the loop's front, and the shares of time."""
    parameters, accuracy = SAMPLINGS[sampling], DRAFTS[drafts]
    rows = Rows(n_vocab, seed=0)
    n_tokens = (n_steps + _N_WARM_UP) * (1 if accuracy is None else DEPTH + 1)
    truth = _truth(rows, parameters, n_vocab, n_tokens)
    shares = Shares()
    front = ReplayFront(truth, accuracy, shares)
    speculation = _speculation(0 if accuracy is None else DEPTH)
    engine = _engine(speculation, parameters, n_vocab, len(truth), shares)
    request = Submit(sequence=SEQUENCE, tokens=truth[:_N_PROMPT], sampling=parameters, max_tokens=n_tokens)
    with contextlib.closing(front):
        if accuracy is not None:
            front.command(SetBacks(names=["back"]))
        front.command(request)
        yield Loop(ReplayTarget(rows, n_vocab, _N_BATCH, shares), engine, front), front, shares


class _Cost(StepCost):
    """A T(n) with which the adaptive policy chooses the depth `DEPTH`: flat up to this depth, then steep."""

    def seconds(self, n_tokens: int) -> float:
        return 0.05 * (1 + 0.01 * n_tokens + max(0, n_tokens - DEPTH - 1))


def _speculation(depth: int) -> SpeculationManager:
    return SpeculationManager(
        "adaptive" if depth else "off",
        depth,
        frozenset(),
        lambda _: {"ngram": NgramDrafter()},
        batching=LikeliestFirst(_Cost()),
    )


def _engine(
    speculation: SpeculationManager,
    parameters: SamplingParameters,
    n_vocab: int,
    n_ctx: int,
    shares: Shares,
) -> Engine:
    """Return the engine that `lead.engine.worker` makes; its samplers are timed."""
    limits = EngineLimits(n_slots=1, n_ctx=n_ctx, n_ctx_sequence=n_ctx, n_batch=_N_BATCH)

    def sampler_for(request: Submit) -> Sampler:
        return TimedSampler(parameters, _filters(parameters, n_vocab), request.tokens, shares)

    return Engine(limits, speculation, sampler_for, frozenset())


def _filters(parameters: SamplingParameters, n_vocab: int) -> NativeFilters | None:
    return NativeFilters(parameters, n_vocab, frozenset(), None) if needs_filters(parameters) else None


def _truth(rows: Rows, parameters: SamplingParameters, n_vocab: int, n_tokens: int) -> list[int]:
    """Return a prompt and the `n_tokens` that follow it."""
    tokens = [position % n_vocab for position in range(_N_PROMPT)]
    sampler = Sampler(parameters, _filters(parameters, n_vocab), tokens)
    for position in range(_N_PROMPT, _N_PROMPT + n_tokens):
        tokens.append(sampler.choose(rows.at(position), position))
        sampler.accept(tokens[-1])
    return tokens


def _step(loop: Loop, shares: Shares) -> tuple[float, Shares]:
    """Return the seconds of one step without the time outside the engine, and their parts."""
    shares.sampling = shares.pipe = shares.outside = 0.0
    started = time.perf_counter()
    loop.step()
    return time.perf_counter() - started - shares.outside, replace(shares)
