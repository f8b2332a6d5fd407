"""`python -m bench leads`: one back for two leads, against two backs that share its core.

Both leads run on the lead's cores and answer at the same time. --calibrate also measures what
`bench simulate --fleet --validate` needs to predict the table.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import options, report, table
from bench.client import client
from bench.processes import Program, ProgramError, start_back, start_lead
from bench.simulation.calibration import Calibration, OneLead, acceptance_of, calibrate
from shared.errors import ConfigError

COLUMNS = {
    "backs": ("backs", ""),
    "tokens_per_second": ("tokens/s of both", ".1f"),
    "first": ("first lead", ".1f"),
    "second": ("second lead", ".1f"),
    "ratio": ("of two backs", ".3f"),
    "share": ("smaller share of the mean", ".3f"),
}
NONE, TWO, ONE, MESH = "none", "two, half a core each", "one for both", "two, each for both"
CASES = (NONE, TWO, ONE, MESH)
_N_ALONE = 3
"""Runs of a lead by itself."""
_BOUND, _SHARE = 0.95, 0.9
_TEXTS = ("Once upon a time", "The little fox", "In a village by the sea", "One morning, a girl named Mia")
_QUICK = {"tokens": 60, "answers": 1, "repeats": 1}


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens per second of the two leads."""

    backs: str
    speeds: tuple[float, float]


def main(arguments: Sequence[str]) -> None:
    """Measure, print a table and one line of JSON."""
    settings = _parse(arguments)
    try:
        runs, calibration = _measure(settings)
    except ProgramError as error:
        raise ConfigError(str(error)) from error
    rows = summarize(runs)
    table.show("Two leads", rows, COLUMNS)
    one = next(row for row in rows if row["backs"] == ONE)
    within = one["ratio"] >= _BOUND and one["share"] >= _SHARE
    known = calibration.as_json() if calibration else None
    report.finish("leads", rows, settings, within_bounds=within, calibration=known)


def summarize(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Medians by case, and their ratios to the case of two backs."""
    rows = [_medians(case, [run.speeds for run in runs if run.backs == case]) for case in CASES]
    for row in rows:
        row["ratio"] = row["tokens_per_second"] / rows[CASES.index(TWO)]["tokens_per_second"]
        row["share"] = 2 * min(row["first"], row["second"]) / (row["first"] + row["second"])
    return rows


def _medians(case: str, speeds: Sequence[tuple[float, float]]) -> dict[str, Any]:
    return {
        "backs": case,
        "tokens_per_second": statistics.median(map(sum, speeds)),
        "first": statistics.median(first for first, _ in speeds),
        "second": statistics.median(second for _, second in speeds),
    }


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench leads", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="of both leads")
    parser.add_argument("--draft", type=Path, required=True, help="of the backs")
    parser.add_argument("--tokens", type=int, default=120, help="tokens of an answer")
    parser.add_argument("--answers", type=int, default=2, help="answers of each lead in a run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--calibrate", action="store_true", help="also time the models, for bench simulate --fleet --validate"
    )
    parser.add_argument("--lead-cpus", help="cores for the leads (default: all but the last)")
    parser.add_argument("--back-cpus", help="cores for the backs (default: the last)")
    report.add_options(parser)
    return report.parse(parser, arguments, _QUICK)


def _measure(settings: argparse.Namespace) -> tuple[list[Run], Calibration | None]:
    cores = options.cores(settings)
    lead = ("--model", str(settings.model), "--cpus", cores.lead, "--threads", "1", "--ctx-size", "2048")
    more = ("--parallel", "1", "--print", "none", "--no-ngram", "--suffix-memory", "0")
    with ExitStack() as stack:
        urls = []
        for _ in range(2):
            program, url = start_lead(*lead, *more)
            stack.enter_context(program)
            urls.append(url)
        runs = []
        for repeat in range(settings.repeats):
            for case in CASES if repeat % 2 == 0 else reversed(CASES):
                runs.append(_run(case, urls, settings, cores.back))
                print(f"repeat {repeat + 1}: {runs[-1]}", file=sys.stderr, flush=True)
        known = _one_lead(urls[0], settings, cores.back) if settings.calibrate else None
    if known is None:
        return runs, None
    return runs, calibrate(settings.model, settings.draft, cores, known)


def _one_lead(url: str, settings: argparse.Namespace, cores: str) -> OneLead:
    """A lead that answers alone; the first answers with a back teach the lead what that is worth."""
    alone = statistics.median(_speed(url, settings) for _ in range(_N_ALONE))
    with ExitStack() as stack, client(url) as http:
        for back in _backs(TWO, [url], settings, cores):
            stack.enter_context(back)
        _speed(url, settings)
        with_back = statistics.median(_speed(url, settings) for _ in range(_N_ALONE))
        return OneLead(alone, with_back, acceptance_of(http))


def _run(case: str, urls: Sequence[str], settings: argparse.Namespace, cores: str) -> Run:
    with ExitStack() as stack:
        for back in _backs(case, urls, settings, cores):
            stack.enter_context(back)
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(lambda url: _speed(url, settings), urls)
    return Run(case, (first, second))


def _backs(case: str, urls: Sequence[str], settings: argparse.Namespace, cores: str) -> list[Program]:
    own = ("--model", str(settings.draft), "--cpus", cores, "--threads", "1", "--parallel", "1")
    match case:
        case "none":
            return []
        case "one for both":
            return [_back_for_all(urls, own)]
        case "two, each for both":
            return [_back_for_all(urls, (*own, "--name", f"back-{number}")) for number in range(2)]
        case _:
            return [start_back(url, *own) for url in urls]


def _back_for_all(urls: Sequence[str], own: Sequence[str]) -> Program:
    back = start_back(urls[0], *(part for url in urls[1:] for part in ("--lead", url)), *own)
    for url in urls:
        back.wait_for(f"drafting for .*{url.rpartition(':')[2]}")
    return back


def _speed(url: str, settings: argparse.Namespace) -> float:
    """Tokens per second over all answers of one lead, prompts included."""
    with client(url) as http:
        began = time.perf_counter()
        for number in range(settings.answers):
            body = {"prompt": _TEXTS[number % len(_TEXTS)], "max_tokens": settings.tokens, "temperature": 0}
            http.post("/v1/completions", json=body | {"ignore_eos": True}).raise_for_status()
        return float(settings.answers * settings.tokens / (time.perf_counter() - began))
