"""`python -m bench precision`: draft depth against how the target's weights are stored.

For each type and depth: tokens/s without a back, tokens/s with drafts of that many tokens (policy sync, as
the classical tables have it), their ratio and the accepted share. Baseline and drafts take turns.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from bench import models, options, report, table
from bench.client import Sampling
from bench.cluster import BackPlan, Cluster, Cores
from bench.contest import Workload, run_contest, warm_up
from bench.plot import plot_lines
from bench.prompts import draw
from bench.summary import BASELINE, Row, summarize
from bench.ways import baseline, lead_ways
from shared.models.grow import Quantization

COLUMNS = {
    "quantization": ("weights", ""),
    "depth": ("depth", "d"),
    "baseline": ("baseline, tokens/s", ".2f"),
    "speculative": ("speculative, tokens/s", ".2f"),
    "speedup": ("speed-up", ".2f"),
    "accepted_share": ("accepted", ".0%"),
    "accepted_per_step": ("per step", ".2f"),
    "n_same_text": ("same text", "d"),
    "n_texts": ("of", "d"),
}

_DEPTHS = (1, 2, 3, 4, 5, 6, 8)
_QUICK = {
    "types": ["f16", "q8_0"],
    "depths": [2, 4],
    "repeats": 1,
    "kinds": ["stories", "knowledge"],
    "tokens": 32,
}


def main(arguments: Sequence[str]) -> None:
    """Measure, print a table, a chart if asked for, and one line of JSON."""
    settings = _parse(arguments)
    cores = options.cores(settings)
    records = [
        record for quantization in settings.types for record in _measure(settings, cores, quantization)
    ]
    table.show(f"depth by weights, target {settings.size}, draft {settings.draft_cost}", records, COLUMNS)
    report.finish("precision", records, settings, _plot, cores=asdict(cores))


def records_of(quantization: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One record per depth from the rows of one target: the baseline's and those named `policy depth`."""
    base = next(row for row in rows if row.way == BASELINE)
    return [
        {
            "quantization": quantization,
            "way": row.way,
            "depth": _depth(row.way),
            "baseline": base.tokens_per_second,
            "speculative": row.tokens_per_second,
            "speedup": row.speedup,
            "accepted_share": row.accepted_share,
            "accepted_per_step": row.accepted_per_step,
            "n_same_text": row.n_same_text,
            "n_texts": row.n_texts,
        }
        for row in rows
        if row.way != BASELINE
    ]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench precision", description=__doc__)
    parser.add_argument(
        "--size", choices=list(models.TARGET_SHAPES), default="0.4G", help="size of the target"
    )
    parser.add_argument(
        "--types",
        type=options.listed(str),
        default=["f16", "q8_0", "q4_0", "f32"],
        help="quantizations of the target's weights",
    )
    parser.add_argument(
        "--draft-cost", default="shipped", help='cost of a draft step relative to the target\'s, or "shipped"'
    )
    parser.add_argument("--depths", type=options.listed(int), default=list(_DEPTHS))
    parser.add_argument("--policy", choices=("sync", "fixed"), default="sync")
    options.add_workload_options(parser)
    report.add_options(parser)
    settings = report.parse(parser, arguments, _QUICK)
    if unknown := set(settings.types) - set(get_args(Quantization)):
        parser.error(
            f"--types: {', '.join(sorted(unknown))}: choose from {', '.join(get_args(Quantization))}"
        )
    return settings


def _measure(settings: argparse.Namespace, cores: Cores, quantization: str) -> list[dict[str, Any]]:
    name = f"{settings.size}:{quantization}"
    target = models.target(name)
    draft = models.draft(settings.draft_cost, target, cores.lead, cores.back)
    _tell(f"{name} (measured draft cost {draft.ratio:.3f})")
    backs = [BackPlan.of_model(draft.path, "back")]
    sampling = Sampling(0.0, settings.tokens)
    with Cluster(target, cores) as cluster:
        ways = [
            baseline(cluster.http, sampling),
            *lead_ways(cluster.http, sampling, [settings.policy], settings.depths),
        ]
        warm_up(ways[:1], draw(settings.kinds[:1], 1, settings.seed - 1)[0])
        workload = Workload(settings.kinds, settings.prompts, settings.repeats, settings.seed)
        runs = run_contest(ways, workload, lambda: cluster.connected(backs), _tell)
    return records_of(quantization, summarize(name, runs, [way.name for way in ways]))


def _depth(way: str) -> int | None:
    depth = way.partition(" ")[2]
    return int(depth) if depth.isdecimal() else None


def _plot(rows: Sequence[Any], folder: Path) -> list[Path]:
    swept = [row for row in rows if row["depth"] is not None]
    labels = ("draft depth", "speed-up over no back")
    return [
        plot_lines(
            swept, folder, name="precision", x="depth", y="speedup", group="quantization", labels=labels
        )
    ]


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
