"""`python -m bench caches`: are logits right, whatever traffic has left in the caches?

For each architecture a tiny random model in f32 serves random traffic (`bench.traffic`), once with one pool
of cells for all slots and once with cells of its own for each slot. Exit status 1 if a logit differs from a
fresh evaluation by more than the bound.
"""

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from bench.architectures import ARCHITECTURES, Row, finish, rows_of
from bench.options import listed
from bench.tiny_models import TinyModel
from bench.traffic import Traffic, TrafficRun
from shared.llama.memory_plan import plan_memory
from shared.settings.model_options import CacheType, ModelOptions

_COLUMNS = {
    "architecture": ("architecture", ""),
    "cells": ("cells", ""),
    "n_compared": ("rows compared", "d"),
    "n_wrong": ("wrong", "d"),
    "n_lost": ("windows lost", "d"),
    "worst": ("largest difference", ".5f"),
    "spread": ("deviation of logits", ".2f"),
}


def main(arguments: Sequence[str]) -> None:
    """Print a table, then a line of JSON."""
    options = _parse(arguments)
    models = (TinyModel(architecture, options.seed) for architecture in options.architectures)
    rows = list(rows_of(models, partial(_rows, options)))
    finish("caches", "logits after random traffic, against a fresh evaluation", rows, _COLUMNS)


def _rows(options: argparse.Namespace, architecture: str, path: Path) -> Iterator[Row]:
    for kv_unified in (True, False):
        yield _row(options, architecture, path, kv_unified=kv_unified)
    if plan_memory(path, ModelOptions()).n_window:
        yield _row(options, architecture, path, kv_unified=True, swa_full=True)


def _row(
    options: argparse.Namespace, architecture: str, path: Path, *, kv_unified: bool, swa_full: bool = False
) -> Row:
    traffic = Traffic(
        path,
        seed=options.seed,
        n_slots=options.slots,
        n_ctx=options.ctx_size,
        kv_unified=kv_unified,
        cache_type=options.cache_type,
        swa_full=swa_full,
    )
    run = TrafficRun(traffic)
    comparison = run.run(options.comparisons)
    run.close()
    return {
        "architecture": architecture,
        "cells": ("one pool" if kv_unified else "per slot") + (", --swa-full" if swa_full else ""),
        "n_compared": len(comparison.differences),
        "n_wrong": comparison.n_wrong(options.bound),
        "n_lost": run.n_windows_lost,
        "worst": comparison.worst,
        "spread": comparison.spread,
    }


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench caches", description=__doc__.split("\n")[0])
    parser.add_argument("--architectures", type=listed(str), default=list(ARCHITECTURES))
    parser.add_argument("--comparisons", type=int, default=1000, help="rows to compare in each run")
    parser.add_argument("--quick", action="store_true", help="compare 100 rows")
    parser.add_argument("--seed", type=int, default=1, help="of the weights and of the traffic")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--ctx-size", type=int, default=2048, help="cells of all slots together")
    parser.add_argument("--cache-type", choices=get_args(CacheType), default="f32", help="of keys and values")
    parser.add_argument("--bound", type=float, default=0.01, help="largest difference that is not wrong")
    options = parser.parse_args(arguments)
    if options.quick:
        options.comparisons = 100
    return options
