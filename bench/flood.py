"""`python -m bench flood`: tokens/s of the lead beside a back that floods it.

A long text is continued again and again, with and without each flood, in turns. Each flood has a name of its
own, so that the lead does not refuse it from the start. The lead has its cores and the flood has others.
"""

import argparse
import contextlib
import shlex
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench import options, report, table
from bench.client import client, n_timed
from bench.cluster import Cores
from bench.flooding_back import CLOSED, KINDS
from bench.processes import Program, ProgramError, start_lead
from bench.stats import speed_columns
from shared.errors import ConfigError

COLUMNS = {
    "flood": ("flood", ""),
    "tokens_per_second": ("tokens/s", ".1f"),
    "low": ("least", ".1f"),
    "high": ("most", ".1f"),
    "ratio": ("of none", ".3f"),
    "cpu_ms": ("CPU ms per token", ".2f"),
    "cpu_ratio": ("of none", ".3f"),
    "n_ended": ("sent away", "d"),
}
_QUICK = {"committed": 1000, "tokens": 100, "repeats": 2}
_NONE = "none"


@dataclass(frozen=True, slots=True)
class FloodedAnswer:
    """`cpu_ms`: of the lead's processes, per token; `n_ended`: how many connections the lead closed."""

    flood: str
    tokens_per_second: float
    cpu_ms: float
    n_ended: int = 0


def main(arguments: Sequence[str]) -> None:
    """Measure, print a table and one line of JSON."""
    settings = _parse(arguments)
    cores = options.cores(settings)
    try:
        answers = _measure(settings, cores)
    except ProgramError as error:
        raise ConfigError(str(error)) from error
    rows = summarize(answers)
    title = f"{settings.committed:,} tokens committed, {settings.rate:g} messages a second"
    table.show(title, rows, COLUMNS)
    report.finish("flood", rows, settings, cores=asdict(cores))


def summarize(answers: Sequence[FloodedAnswer]) -> list[dict[str, Any]]:
    """Medians by flood, and their ratios to those without one."""
    rows = [
        _medians([answer for answer in answers if answer.flood == flood])
        for flood in dict.fromkeys(answer.flood for answer in answers)
    ]
    (none,) = (row for row in rows if row["flood"] == _NONE)
    for row in rows:
        row["ratio"] = row["tokens_per_second"] / none["tokens_per_second"]
        row["cpu_ratio"] = row["cpu_ms"] / none["cpu_ms"]
    return rows


def _medians(answers: Sequence[FloodedAnswer]) -> dict[str, Any]:
    return {
        "flood": answers[0].flood,
        **speed_columns([answer.tokens_per_second for answer in answers]),
        "cpu_ms": statistics.median(answer.cpu_ms for answer in answers),
        "n_ended": sum(answer.n_ended for answer in answers),
    }


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench flood", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="the lead's, with the shipped vocabulary")
    parser.add_argument(
        "--kinds", type=options.listed(str), default=["stale"], help=f"floods, of {', '.join(KINDS)}"
    )
    parser.add_argument("--rate", type=float, default=1500.0, help="messages per second")
    parser.add_argument("--committed", type=int, default=12_000, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=300, help="tokens of an answer")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lead-cpus", help="cores for the lead (default: all but the last)")
    parser.add_argument("--back-cpus", help="cores for the flood (default: the last)")
    parser.add_argument("--lead-options", type=shlex.split, default=[], help="further options of the lead")
    report.add_options(parser)
    return report.parse(parser, arguments, _QUICK)


def _measure(settings: argparse.Namespace, cores: Cores) -> list[FloodedAnswer]:
    n_ctx = settings.committed + settings.tokens + 256
    kinds = [_NONE, *settings.kinds]
    answers = []
    lead, url = start_lead(
        *("--model", str(settings.model), "--cpus", cores.lead, "--threads", "1", "--ctx-size", str(n_ctx)),
        *("--parallel", "1", "--print", "none", "--no-ngram", "--suffix-memory", "0", *settings.lead_options),
    )
    with lead, client(url) as http:
        ask(http, settings)  # reads the prompt, whose cache the others use
        for repeat in range(settings.repeats):
            for kind in kinds if repeat % 2 == 0 else reversed(kinds):
                answers.append(_answer(kind, lead, http, settings, cores, name=f"flood-{repeat}"))
                print(
                    f"repeat {repeat + 1} of {settings.repeats}: {answers[-1]}", file=sys.stderr, flush=True
                )
    return answers


def _answer(
    kind: str, lead: Program, http: httpx.Client, settings: argparse.Namespace, cores: Cores, *, name: str
) -> FloodedAnswer:
    """One answer beside a flood of this kind, as `--kinds` names it, by a back of this name."""
    url = str(http.base_url)
    with contextlib.ExitStack() as stack:
        flood = stack.enter_context(_flood(kind, name, url, settings, cores)) if kind != _NONE else None
        before = sum(cpu_seconds(lead))
        speed = ask(http, settings)
        cpu_ms = 1000 * (sum(cpu_seconds(lead)) - before) / settings.tokens
        return FloodedAnswer(kind, speed, cpu_ms, flood.log.count(CLOSED) if flood else 0)


def _flood(kind: str, name: str, url: str, settings: argparse.Namespace, cores: Cores) -> Program:
    flood = Program(
        "bench.flooding_back",
        *("--lead", url, "--kind", kind, "--name", name),
        *("--rate", str(settings.rate), "--cpus", cores.back),
    )
    flood.wait_for("drafting for ")
    return flood


def cpu_seconds(lead: Program) -> tuple[float, float]:
    """What the lead's front has used, and what its children have, above all the engine."""
    front = psutil.Process(lead.process.pid)
    seconds = [sum(each.cpu_times()[:2]) for each in (front, *front.children(recursive=True))]
    return seconds[0], sum(seconds[1:])


def ask(http: httpx.Client, settings: argparse.Namespace) -> float:
    """Tokens per second of one answer, after its first step."""
    body = {
        "prompt": [10 + position % 2000 for position in range(settings.committed)],
        "n_predict": settings.tokens,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": True,
    }
    timings = http.post("/completion", json=body).raise_for_status().json()["timings"]
    return 1000 * n_timed(timings) / float(timings["predicted_ms"])
