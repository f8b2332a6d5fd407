"""`python -m bench plan`: what `lead plan` predicts, against what the commands that it prints then reach.

    python -m bench plan                                  draft costs shipped, 0.1 and 0.3, T = 0
    python -m bench plan --costs 0.1 --temperature 1

Each arrangement on this machine is started by its own command, with the features off that a plan leaves out;
then all of them continue the same texts in turns. A back on another machine cannot be measured here.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from bench import models, report, table
from bench.client import client, n_timed
from bench.options import listed
from bench.processes import start_calibrated_lead
from shared import cpus
from shared.errors import ConfigError

_N_WARM_UP = 32
_COLUMNS = {
    "arrangement": ("arrangement", ""),
    "predicted": ("predicted", ".1f"),
    "low": ("from", ".1f"),
    "high": ("to", ".1f"),
    "measured": ("measured", ".1f"),
    "predicted_to_measured": ("predicted/measured", ".2f"),
    "to_best": ("of the best", ".2f"),
    "chosen": ("chosen", ""),
}


def main(arguments: Sequence[str]) -> None:
    """Print a table for each draft cost, and one line of JSON. Raises ConfigError."""
    options = _parse(arguments)
    cores = cpus.one_of_each_core()
    target = models.target_or_file(options.target)
    rows = []
    for cost in options.costs:
        draft = models.draft(cost, target, str(cores[0]), str(cores[-1]))
        found = _compare(target, draft.path, options)
        table.show(f"{target.name}, draft cost {draft.ratio:.3f}, T={options.temperature:g}", found, _COLUMNS)
        rows += [{"cost": draft.ratio, "temperature": options.temperature, **row} for row in found]
    report.finish("plan", rows, options)


def compare(plan: Mapping[str, Any], measured: Mapping[str, float]) -> list[dict[str, Any]]:
    """A row for each arrangement of which `measured` has the tokens per second, by the plan's own names."""
    best = max(measured.values())
    return [
        {
            "arrangement": (name := each["arrangement"]),
            "predicted": each["tokens_per_second"],
            "low": each["low"],
            "high": each["high"],
            "measured": measured[name],
            "predicted_to_measured": each["tokens_per_second"] / measured[name],
            "to_best": measured[name] / best,
            "chosen": "yes" if name == plan["fastest"] else "",
        }
        for each in plan["arrangements"]
        if each["arrangement"] in measured
    ]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench plan", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    report.add_options(parser)
    parser.add_argument("--target", default="0.4G:f16", help="size:type, or a GGUF file")
    parser.add_argument(
        "--costs", type=listed(str), default=["shipped", "0.1", "0.3"], help="of a draft step"
    )
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--tokens", type=int, default=96, help="of each text")
    parser.add_argument("--repeats", type=int, default=2, help="of the texts")
    return report.parse(parser, arguments, {"costs": ["shipped"], "tokens": 32, "repeats": 1})


def _compare(target: Path, draft: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    plan = _plan(target, draft, options.temperature)
    texts: list[str] = plan["texts"]
    with ExitStack() as stack:
        leads = {
            each["arrangement"]: _started(stack, each)
            for each in plan["arrangements"]
            if each["kind"] != "remote"
        }
        for http in leads.values():
            _seconds_per_token(http, texts[0], options.temperature, _N_WARM_UP, 0)
        times: dict[str, list[float]] = {name: [] for name in leads}
        for number, text in enumerate(texts * options.repeats):
            for name, http in leads.items():
                seconds = _seconds_per_token(http, text, options.temperature, options.tokens, number)
                times[name].append(seconds)
    return compare(plan, {name: 1 / statistics.fmean(each) for name, each in times.items()})


def _plan(target: Path, draft: Path, temperature: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "lead", "plan", "--model", str(target), "--draft-model", str(draft)]
    command += ["--temp", str(temperature), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"lead plan failed: {done.stderr.strip()[-300:]}")
    plan: dict[str, Any] = json.loads(done.stdout)
    return plan


def _started(stack: ExitStack, each: Mapping[str, Any]) -> httpx.Client:
    """A client of a lead that the plan's command has started, with its back."""
    program, *arguments = shlex.split(each["commands"][0])
    assert program == "lead"
    lead, url = start_calibrated_lead(*arguments)
    stack.enter_context(lead)
    if each["kind"] == "split":
        lead.wait_for(r"back local .*joined")
    return stack.enter_context(client(url))


def _seconds_per_token(
    http: httpx.Client, prompt: str, temperature: float, n_tokens: int, seed: int
) -> float:
    """The time for a token of one text, without its prompt."""
    body = {"prompt": prompt, "n_predict": n_tokens, "temperature": temperature, "seed": seed}
    response = http.post("/completion", json=body | {"ignore_eos": True, "cache_prompt": False})
    if not response.is_success:
        raise ConfigError(f"{http.base_url} answered {response.status_code}: {response.text[:300]}")
    timings = response.json()["timings"]
    return float(timings["predicted_ms"]) / 1000 / n_timed(timings)
