"""`python -m bench memory`: does the memory of lead and back grow with the tokens that were served?

Concurrent clients stream answers of one length. After every block of tokens the resident memory of each
process is read. The growth is the slope of a line through the blocks but the first, in which caches fill up.
`--model-alone` looks at llama.cpp in this process instead, `touched` after the largest batch that it can get.
"""

import argparse
import asyncio
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench import report, table
from bench.client import Sampling
from bench.faults.site import Site
from bench.load import Load, put_on
from bench.model_memory import RandomTraffic, grow
from bench.prompts import KINDS, Prompt, draw
from shared.llama.model import Model
from shared.models.builtin import builtin_target
from shared.settings.model_options import ModelOptions

_MEGABYTE = 1e6
_PER_TOKENS = 100_000
_CELLS_PER_SLOT = 1024

Row = dict[str, Any]


def main(arguments: Sequence[str]) -> None:
    """Print a row for each block, then the growth of each process."""
    settings = _parse(arguments)
    rows = _decode(settings) if settings.model_alone else asyncio.run(_serve(settings))
    columns = {name: (f"{name}, MB", ".1f") for name in _processes(rows)}
    counts = {"tokens": ("tokens", ",d"), "tokens_per_second": ("tokens/s", ".0f")}
    table.show("Memory", rows, counts | columns)
    grown = growth(rows)
    for name, megabytes in grown.items():
        print(f"{name}: {megabytes:+.2f} MB per {_PER_TOKENS:,} tokens")
    report.finish("memory", rows, settings, growth=grown)


def growth(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """MB per 100,000 tokens of each process, without the first block; none from fewer than three blocks."""
    steady = rows[1:]
    if len(steady) < 2:  # noqa: PLR2004 - a line needs two points
        return {}
    tokens = [row["tokens"] / _PER_TOKENS for row in steady]
    return {
        name: statistics.linear_regression(tokens, [row[name] for row in steady]).slope
        for name in _processes(steady)
    }


def _processes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Those that are in all rows."""
    common = set.intersection(*(set(row) for row in rows)) - {"tokens", "tokens_per_second"}
    return sorted(common)


def _decode(settings: argparse.Namespace) -> list[Row]:
    n_slots = settings.clients
    load = ModelOptions(threads=1, parallel=n_slots, ctx_size=_CELLS_PER_SLOT * n_slots)
    rng = random.Random(settings.seed)  # noqa: S311 - the same traffic each time is wanted
    traffic = RandomTraffic(Model(builtin_target(), load), rng)
    return [*grow(traffic, settings.tokens, settings.every, touched=settings.model_alone == "touched")]


async def _serve(settings: argparse.Namespace) -> list[Row]:
    options = ("--parallel", str(settings.clients), "--ctx-size", str(_CELLS_PER_SLOT * settings.clients))
    sampling = Sampling(temperature=0.8, n_tokens=settings.answer)
    rows: list[Row] = []
    async with Site(builtin_target(), settings.backs, options) as site:
        n_served = 0
        while n_served < settings.tokens:
            prompts = _prompts(settings, len(rows))
            load = await put_on(site.url, "lead", prompts, sampling)
            n_served += load.n_answers * settings.answer
            rows.append(_row(n_served, load, site.memory()))
            print(", ".join(f"{name} {value:.1f}" for name, value in rows[-1].items()), flush=True)
    return rows


def _prompts(settings: argparse.Namespace, block: int) -> list[list[Prompt]]:
    """The prompts of each client in one block, the same ones never again."""
    n_each = max(1, round(settings.every / settings.clients / settings.answer))
    n = n_each * settings.clients
    kinds = list(KINDS)
    drawn = draw(kinds, -(-n // len(kinds)), settings.seed + block)
    return [drawn[client * n_each : (client + 1) * n_each] for client in range(settings.clients)]


def _row(n_served: int, load: Load, memory: Mapping[str, int]) -> Row:
    sizes = {name: size / _MEGABYTE for name, size in memory.items()}
    return {"tokens": n_served, "tokens_per_second": load.tokens_per_second} | sizes


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench memory", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--every", type=int, default=100_000, metavar="N", help="tokens of one block")
    parser.add_argument("--answer", type=int, default=256, metavar="N", help="tokens of one answer")
    parser.add_argument("--clients", type=int, default=16, metavar="N", help="concurrent clients, and slots")
    parser.add_argument("--backs", type=int, default=1, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model-alone", choices=("fresh", "touched"), help="no lead, no back, no clients")
    report.add_options(parser)
    return report.parse(parser, arguments, {"tokens": 12_000, "every": 4_000})
