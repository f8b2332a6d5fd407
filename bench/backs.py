"""`python -m bench backs`: tokens/s of a lead with many connected backs whose drafts are all wrong.

Front and engine share the lead's cores; the backs, in one process, have others. Each number of backs is
measured in turns.
"""

import argparse
import contextlib
import shlex
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from bench import options, report, table
from bench.client import client
from bench.cluster import Cores
from bench.flood import ask, cpu_seconds
from bench.processes import Program, ProgramError, start_lead
from bench.stats import speed_columns
from shared.errors import ConfigError

COLUMNS = {
    "n_backs": ("backs", "d"),
    "tokens_per_second": ("tokens/s", ".1f"),
    "low": ("least", ".1f"),
    "high": ("most", ".1f"),
    "ratio": ("of none", ".3f"),
    "front_ms": ("front, CPU ms per token", ".2f"),
    "engine_ms": ("engine", ".2f"),
}
_BOUND = 0.95
_QUICK = {"tokens": 100, "answers": 1, "repeats": 2}


@dataclass(frozen=True, slots=True)
class Answer:
    """CPU time is per token, in milliseconds."""

    n_backs: int
    tokens_per_second: float
    front_ms: float
    engine_ms: float


def main(arguments: Sequence[str]) -> None:
    """Measure, print a table and one line of JSON."""
    settings = _parse(arguments)
    cores = options.cores(settings)
    try:
        answers = _measure(settings, cores)
    except ProgramError as error:
        raise ConfigError(str(error)) from error
    rows = summarize(answers)
    table.show("Connected backs whose drafts are all wrong", rows, COLUMNS)
    within_bounds = all(row["ratio"] >= _BOUND for row in rows)
    report.finish("backs", rows, settings, cores=asdict(cores), within_bounds=within_bounds)


def summarize(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Medians by number of backs, and the ratios of their speeds to those without any."""
    rows = [
        _medians([answer for answer in answers if answer.n_backs == n])
        for n in sorted({answer.n_backs for answer in answers})
    ]
    for row in rows:
        row["ratio"] = row["tokens_per_second"] / rows[0]["tokens_per_second"]
    return rows


def _medians(answers: Sequence[Answer]) -> dict[str, Any]:
    return {
        "n_backs": answers[0].n_backs,
        **speed_columns([answer.tokens_per_second for answer in answers]),
        "front_ms": statistics.median(answer.front_ms for answer in answers),
        "engine_ms": statistics.median(answer.engine_ms for answer in answers),
    }


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench backs", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="the lead's")
    parser.add_argument("--counts", type=options.listed(int), default=[64, 128], help="numbers of backs")
    parser.add_argument("--tokens", type=int, default=200, help="tokens of an answer")
    parser.add_argument("--committed", type=int, default=100, help="tokens of the prompt")
    parser.add_argument("--answers", type=int, default=2, help="answers beside each number of backs")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--lead-cpus", help="cores for the lead (default: all but the last)")
    parser.add_argument("--back-cpus", help="cores for the backs (default: the last)")
    parser.add_argument("--lead-options", type=shlex.split, default=[], help="further options of the lead")
    report.add_options(parser)
    return report.parse(parser, arguments, _QUICK)


def _measure(settings: argparse.Namespace, cores: Cores) -> list[Answer]:
    counts = [0, *settings.counts]
    answers = []
    lead, url = start_lead(
        *("--model", str(settings.model), "--cpus", cores.lead, "--threads", "1", "--ctx-size", "2048"),
        *("--max-backs", str(max(counts)), "--parallel", "1", "--print", "none"),
        *("--no-ngram", "--suffix-memory", "0", *settings.lead_options),
    )
    with lead, client(url) as http:
        ask(http, settings)  # reads the prompt, whose cache the others use
        for repeat in range(settings.repeats):
            for n_backs in counts if repeat % 2 == 0 else reversed(counts):
                with _connected(n_backs, url, settings, cores):
                    answers += [_answer(n_backs, lead, http, settings) for _ in range(settings.answers)]
                print(f"repeat {repeat + 1}: {answers[-settings.answers :]}", file=sys.stderr, flush=True)
    return answers


@contextlib.contextmanager
def _connected(n_backs: int, url: str, settings: argparse.Namespace, cores: Cores) -> Iterator[None]:
    if not n_backs:
        yield
        return
    arguments = ("--lead", url, "--n", str(n_backs), "--model", str(settings.model), "--cpus", cores.back)
    with Program("bench.wrong_backs", *arguments) as backs:
        backs.wait_for("drafting for ")
        yield


def _answer(n_backs: int, lead: Program, http: httpx.Client, settings: argparse.Namespace) -> Answer:
    before = cpu_seconds(lead)
    speed = ask(http, settings)
    front, engine = (
        1000 * (after - seconds) / settings.tokens
        for seconds, after in zip(before, cpu_seconds(lead), strict=True)
    )
    return Answer(n_backs, speed, front, engine)
