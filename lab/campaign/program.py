"""`python -m bench faults`: tests whether faults of lead, backs and network lose or change answers.

A lead alone first answers mixed requests, one at a time: these answers are the reference. The control run
sends the requests to the same lead concurrently. The campaign then sends them to a lead with backs while
faults happen. The exit status is 1 if an answer was changed, lost, or left without a terminal event.

With `--exact on` the leads compute in exact mode, the lead of the campaign splits prompts differently, and
the log-probabilities of all tokens must be bit-identical, for any type of weights.
"""

import argparse
import asyncio
import math
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

from lab.campaign import campaign, summary
from lab.campaign.asking import Tally
from lab.campaign.campaign import Result
from lab.campaign.injector import KINDS, Fault, chosen_kinds, faults
from lab.campaign.requests import NEXT_TURN, MixedRequest, draw, next_turn, with_logprobs
from lab.campaign.site import Site
from lab.measuring.answer import ReceivedAnswer
from lab.parts import report
from lab.parts.models import shipped_target
from shared.convert.gguf_file import Quantization
from shared.model_files.builtin import builtin_draft

_ENGINE_SECONDS = 2.0
"""An engine without a reply for this long counts as hanging, because a step takes milliseconds."""

_RESTARTS = 3
"""The lead's default of --max-restarts."""


def main(arguments: Sequence[str]) -> None:
    """Run the campaign; status 1 if any check fails."""
    settings = _parse(arguments)
    runs = asyncio.run(_run(settings))
    summary.show(runs)
    last = runs["faults"]
    if settings.log:
        settings.log.write_text(last.lead_log + "\n", encoding="utf-8")
    command = (
        f"python -m bench faults --seed {settings.seed} --weights {settings.weights} --exact {settings.exact}"
    )
    print(*summary.failure_lines(last.tally, last.happened, command), *last.failures[:20], sep="\n")
    rows = [summary.outcome_row(name, result) for name, result in runs.items()]
    report.finish("faults", rows, settings)
    if not summary.holds(last):
        sys.exit(1)


async def _run(settings: argparse.Namespace) -> dict[str, Result]:
    target = settings.target or shipped_target(settings.weights)
    requests = _distinct(settings)
    runs: dict[str, Result] = {}
    async with Site(target, (), _options(settings, alone=True)) as site:
        campaign.tell(f"asking {len(requests)} requests one at a time, without faults or backs")
        expected = await campaign.answers(site, requests)
        later = [
            next_turn(request, expected[request.index].choices[0].text)
            for request in requests
            if request.kind == "chat"
        ]
        expected |= await campaign.answers(site, later)
        requests += later
        if settings.control:
            asked = _repeated(requests, settings.control, settings.seed)
            runs["control"] = await _ask(site, asked, expected, settings, ())
    async with Site(target, [builtin_draft()] * settings.backs, _options(settings, alone=False)) as site:
        asked = _repeated(requests, settings.requests, settings.seed)
        schedule = faults(settings.seed, settings.faults, settings.pace)
        runs["faults"] = await _ask(site, asked, expected, settings, schedule)
    return runs


async def _ask(
    site: Site,
    asked: Sequence[MixedRequest],
    expected: dict[int, ReceivedAnswer],
    settings: argparse.Namespace,
    schedule: Iterator[Fault] | tuple[()],
) -> Result:
    campaign.tell(f"asking {len(asked)} requests, {settings.clients} at a time")
    return await campaign.run(
        site,
        asked,
        Tally(expected, exact=settings.exact == "on"),
        n_clients=settings.clients,
        schedule=schedule,
        seconds=settings.seconds,
    )


def _distinct(settings: argparse.Namespace) -> list[MixedRequest]:
    """Return the requests that are asked repeatedly. More requests would need more reference answers, which
    take as long as the campaign.
    """
    indices = range(min(settings.requests, settings.distinct))
    drawn = [draw(settings.seed, index) for index in indices]
    if settings.only is not None:
        drawn = [draw(settings.seed, settings.only % NEXT_TURN)]
    return [with_logprobs(request) for request in drawn] if settings.exact == "on" else drawn


def _repeated(requests: Sequence[MixedRequest], n: int, seed: int) -> list[MixedRequest]:
    """Return `n` requests: all of them again and again, each time in another order."""
    rng = random.Random(f"{seed} order")  # noqa: S311 - a seeded order is wanted
    asked: list[MixedRequest] = []
    while len(asked) < n:
        asked += rng.sample(requests, len(requests))
    return asked[:n]


def _options(settings: argparse.Namespace, *, alone: bool) -> list[str]:
    """Return the options of the lead, with KV caches that are as precise as the weights."""
    options = ["--ctx-size", "16384", "--ping-seconds", "2", "--drain-seconds", "60"]
    other_pieces = settings.exact == "on" and not alone
    options += ["--parallel", "6", "--batch-size", "40"] if other_pieces else ["--parallel", "8"]
    options += ["--exact", settings.exact, *settings.lead.split()]
    if settings.weights == "f32" and settings.exact == "off":
        options += ["--cache-type-k", "f32", "--cache-type-v", "f32"]
    if alone:
        return [*options, "--no-ngram", "--policy", "off"]
    # Faults that come more often than usual may hit the same answer more often.
    n_restarts = max(_RESTARTS, round(_RESTARTS * settings.pace))
    return [*options, "--engine-timeout", str(_ENGINE_SECONDS), "--max-restarts", str(n_restarts)]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=2000, metavar="N")
    parser.add_argument("--distinct", type=int, default=300, metavar="N", help="different requests")
    parser.add_argument("--control", type=int, default=600, metavar="N", help="requests in the control run")
    parser.add_argument("--seed", type=int, default=1, help="seed of requests and faults")
    parser.add_argument("--only", type=int, metavar="INDEX", help="ask only this request, repeatedly")
    parser.add_argument(
        "--faults", type=chosen_kinds, default=list(KINDS), metavar="KIND,…", help=", ".join(["all", *KINDS])
    )
    parser.add_argument("--pace", type=float, default=1.0, help="divide the pauses between faults by this")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no request after this time")
    parser.add_argument("--backs", type=int, default=2, metavar="N")
    parser.add_argument("--clients", type=int, default=12, metavar="N", help="requests at a time")
    parser.add_argument("--weights", choices=get_args(Quantization), default="f32", help="target's weights")
    parser.add_argument("--target", type=Path, help="a GGUF file instead of the shipped target")
    parser.add_argument("--exact", choices=("on", "off"), default="off", help="exact mode of the leads")
    parser.add_argument("--lead", default="", help="further options of the leads, separated by spaces")
    parser.add_argument("--log", type=Path, metavar="FILE", help="write the lead's log to this file")
    report.add_options(parser)
    quick = {"requests": 100, "distinct": 30, "control": 30, "pace": 3.0}
    return report.parse(parser, arguments, quick)
