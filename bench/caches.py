"""`python -m bench caches`: are logits right, whatever traffic has left in the caches?

For each architecture a tiny random model in f32 serves random traffic (`bench.traffic`), with one pool of
cells for all slots and with cells of its own for each slot, with room and cramped; where it can have heads
that draft (MTP), also with these. Exit status 1 if a logit differs from a fresh evaluation by more than the
bound, or if an engine dies.
"""

import argparse
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import get_args

from bench.architectures import ARCHITECTURES, Row, finish, rows_of
from bench.options import listed
from bench.tiny_models import WITH_HEADS, TinyModel, with_heads
from bench.traffic import Traffic, TrafficRun
from shared.llama.memory_plan import plan_memory
from shared.llama.mtp_heads import has_heads
from shared.settings.model_options import CacheType, ModelOptions

_COLUMNS = {
    "architecture": ("architecture", ""),
    "cells": ("cells", ""),
    "n_compared": ("rows compared", "d"),
    "n_wrong": ("wrong", "d"),
    "n_dead": ("dead engines", "d"),
    "n_lost": ("windows lost", "d"),
    "worst": ("largest difference", ".5f"),
    "spread": ("deviation of logits", ".2f"),
}


def main(arguments: Sequence[str]) -> None:
    """Print a table, then a line of JSON."""
    options = _parse(arguments)
    rows = list(rows_of(_models(options), partial(_rows, options)))
    finish("caches", "logits after random traffic, against a fresh evaluation", rows, _COLUMNS)


def _models(options: argparse.Namespace) -> Iterator[TinyModel]:
    for architecture in options.architectures:
        yield TinyModel(architecture, options.seed)
        if architecture in WITH_HEADS:
            yield with_heads(architecture, options.seed)


def _rows(options: argparse.Namespace, architecture: str, path: Path) -> Iterator[Row]:
    usual = Traffic(
        path, seed=options.seed, n_slots=options.slots, n_ctx=options.ctx_size, cache_type=options.cache_type
    )
    ways = {"": usual, ", cramped": usual.cramped()}
    for (name, traffic), kv_unified in product(ways.items(), (True, False)):
        cells = ("one pool" if kv_unified else "per slot") + name
        yield _row(options, architecture, cells, replace(traffic, kv_unified=kv_unified))
    if plan_memory(path, ModelOptions()).n_window:
        yield _row(options, architecture, "one pool, --swa-full", replace(usual, swa_full=True))


def _row(options: argparse.Namespace, architecture: str, cells: str, traffic: Traffic) -> Row:
    run = TrafficRun(traffic)
    n_dead = 0
    try:
        run.run(options.comparisons)
    except Exception:  # noqa: BLE001 - whatever it is, it ends an engine
        traceback.print_exc()
        n_dead = 1
    run.close()
    return {
        "architecture": architecture,
        "cells": cells + (", heads" if has_heads(traffic.model) else ""),
        "n_compared": len(run.comparison.differences),
        "n_wrong": run.comparison.n_wrong(options.bound),
        "n_dead": n_dead,
        "n_lost": run.n_windows_lost,
        "worst": run.comparison.worst,
        "spread": run.comparison.spread,
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
