"""`python -m bench fuzz`: messages of every kind, valid and broken, against the protocol code of each side.

The lead's side gets those of hostile backs, the back's side those of a hostile lead. Nothing may raise, be
logged as an error, change a text or stay in memory. `files` are damaged and hostile models, which real
programs have to refuse in a sentence, within ten seconds each.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench import report
from bench.fuzzing.back_side import BackFuzzer
from bench.fuzzing.file_side import FileFuzzer
from bench.fuzzing.lead_side import LeadFuzzer
from bench.fuzzing.tally import Tally, UnexpectedErrors

_COLUMNS = {
    "side": ("side", ""),
    "messages": ("messages", ",d"),
    "per_second": ("a second", ",.0f"),
    "connections": ("connections", ",d"),
    "crashes": ("crashes", "d"),
    "errors": ("logged errors", "d"),
    "changed": ("changed tokens", "d"),
    "memory_start": ("MB at start", ".1f"),
    "memory_10": ("at 10 %", ".1f"),
    "memory_50": ("at 50 %", ".1f"),
    "memory_end": ("at the end", ".1f"),
}
_QUICK = {"messages": 5000, "real": 500, "files": 5}


def main(arguments: Sequence[str]) -> None:
    """Print what was found, a table and one line of JSON; status 1 after a crash, error or changed text."""
    parser = argparse.ArgumentParser(prog="python -m bench fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, metavar="N", help="for each side")
    parser.add_argument(
        "--real", type=int, default=20_000, metavar="N", help="those for a back with a real model"
    )
    parser.add_argument("--files", type=int, default=100, metavar="N", help="those for programs to load")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sides", default="lead,back,real,files", help="which to fuzz")
    report.add_options(parser)
    settings = report.parse(parser, arguments, _QUICK)
    rows = [fuzz(side, settings) for side in settings.sides.split(",")]
    report.show(f"Fuzzed messages, seed {settings.seed}", rows, _COLUMNS)
    report.finish("fuzz", rows, settings)
    sys.exit(any(row["crashes"] or row["errors"] or row["changed"] for row in rows))


def _fuzzer(side: str, rng: random.Random, tally: Tally) -> LeadFuzzer | BackFuzzer | FileFuzzer:
    if side == "files":
        return FileFuzzer(rng, tally)
    return LeadFuzzer(rng, tally) if side == "lead" else BackFuzzer(rng, tally, is_real=side == "real")


def fuzz(side: str, settings: argparse.Namespace) -> dict[str, Any]:
    """One row; what was unexpected is printed."""
    n = {"real": settings.real, "files": settings.files}.get(side, settings.messages)
    tally = Tally(n, lambda line: print(f"{side}: {line}", file=sys.stderr, flush=True))
    rng = random.Random(settings.seed)  # noqa: S311 - the same messages each time are wanted
    began = time.monotonic()
    with UnexpectedErrors() as errors:
        asyncio.run(_fuzzer(side, rng, tally).run(n))
    for what, count in [*sorted(tally.counts.items()), *errors.seen.items()]:
        print(f"{side}: {count:,} x {what}", file=sys.stderr)
    counts, memory = tally.counts, tally.memory
    return {
        "side": side,
        "messages": counts["messages"],
        "per_second": counts["messages"] / (time.monotonic() - began),
        "connections": counts["connections"],
        "crashes": sum(count for what, count in counts.items() if what.startswith("CRASH")),
        "errors": sum(errors.seen.values()),
        "changed": counts["changed tokens"],
        "memory_start": memory.get(0.0),
        "memory_10": memory.get(0.1),
        "memory_50": memory.get(0.5),
        "memory_end": memory.get(1.0),
    }
