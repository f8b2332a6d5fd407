"""`python -m bench equal_hardware`: a draft model in the lead against llama-server's, on the same cores.

    python -m bench equal_hardware --peer llama-server=PATH
    python -m bench equal_hardware --peer llama-server=PATH --costs 0.1 --temperatures 1 --repeats 8

The lead decides how much to draft; llama-server's depth is fixed when it starts, so there is one server for
each depth. All servers have all cores and the same two models, and answer the same prompts in turns; a server
that waits for its turn takes no CPU time. The filters are those that both have by default. The lead does not
draft from texts (`--no-ngram --suffix-memory 0`), as llama-server does not.
"""

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import httpx

from lab.measuring.builtin_questions import KINDS, draw, rounds_of
from lab.measuring.contest import run_contest, warm_up
from lab.measuring.measured_answer import Sampling
from lab.measuring.summary import summarize
from lab.parts import models, peer, report
from lab.parts.options import draft_cost, kind, listed
from lab.parts.ways import ADAPTIVE, OFF, lead_within, peer_ways, policy_way
from shared import cpus

LEAD = "lead --draft-model"
_ALONE = ("--no-ngram", "--suffix-memory", "0", "--parallel", "1", "--ctx-size", "2048")
_CALIBRATION_SECONDS = 34.0
"""The seconds until the lead has timed its steps for the last time (`lead.engine.calibration`)."""
_WARM_UP_PROMPT = draw(["stories"], 1, 0)[0]
_COLUMNS = {
    "cost": ("draft cost", ".3f"),
    "temperature": ("T", "g"),
    "way": ("way", ""),
    "tokens_per_second": ("tokens/s", ".1f"),
    "low": ("least", ".1f"),
    "high": ("most", ".1f"),
    "speedup": ("of the lead's", ".2f"),
}


def main(arguments: Sequence[str]) -> None:
    """Print a table for each draft cost, and one line of JSON. Raises ConfigError."""
    options = _parse(arguments)
    cores = cpus.one_of_each_core()
    target = models.target(options.target)
    rows = []
    for cost in options.costs:
        draft = models.draft(cost, target, str(cores[0]), str(cores[-1]))
        found = [{"cost": draft.ratio, **row} for row in _measure(target, draft.path, cores, options)]
        report.show(f"{target.name}, {len(cores)} cores", found, _COLUMNS)
        rows += found
    report.finish("equal_hardware", rows, options)


def _measure(
    target: Path, draft: Path, cores: Sequence[int], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Return rows for each temperature."""
    rows = []
    with ExitStack() as stack:
        on = ",".join(map(str, cores))
        peers = peer.start_peers(stack, options.peer, target, draft, on, depths=options.depths)
        lead = _start_lead(stack, target, draft, cores)  # which times its steps now, so it comes last
        for temperature in options.temperatures:
            sampling = Sampling(temperature, options.tokens, default_filters=True)
            ways = [
                policy_way(lead, sampling, ADAPTIVE, LEAD),
                policy_way(lead, sampling, OFF, "lead alone"),
                *peer_ways(peers, sampling),
            ]
            warm_up(ways, _WARM_UP_PROMPT)
            rounds = rounds_of(options.kinds, 1, options.repeats, options.seed)
            runs = run_contest([lambda: nullcontext(ways)], rounds, options.seed)  # noqa: B023 - called here
            found = summarize(target.name, runs, baseline=LEAD)
            rows += [{"temperature": temperature, **row.record()} for row in found]
    return rows


def _start_lead(stack: ExitStack, target: Path, draft: Path, cores: Sequence[int]) -> httpx.Client:
    pair = ("--model", str(target), "--draft-model", str(draft))
    _, http = lead_within(stack, *pair, *_ALONE, "--threads", str(len(cores)))
    time.sleep(_CALIBRATION_SECONDS)
    return http


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench equal_hardware", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    report.add_options(parser)
    parser.add_argument("--peer", type=peer.find, required=True, metavar="llama-server=PATH")
    parser.add_argument("--target", default="0.4G:f16", help="size:type, or a GGUF file")
    parser.add_argument(
        "--costs",
        type=listed(draft_cost),
        default=["shipped", "0.1", "0.3"],
        help="of a draft step, or a GGUF file",
    )
    parser.add_argument("--depths", type=listed(int), default=[1, 2, 3, 5], help="of llama-server's drafts")
    parser.add_argument("--temperatures", type=listed(float), default=[0.0, 1.0])
    parser.add_argument("--kinds", type=listed(kind), default=list(KINDS), help="of prompts")
    parser.add_argument("--tokens", type=int, default=100, help="of an answer, at most")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1, help="seed of the prompts and their order")
    quick = {"costs": ["shipped"], "depths": [3], "tokens": 32, "repeats": 1, "kinds": ["stories"]}
    return report.parse(parser, arguments, quick)
