"""`python -m bench plan`: what `lead plan` predicts, against what the commands that it prints then reach.

    python -m bench plan                                  draft costs shipped, 0.1 and 0.3, T = 0
    python -m bench plan --costs 0.1 --temperature 1

`lead bench` measures each arrangement on this machine with the questions that the plan was made with, and
without what a plan leaves out. A back on another machine cannot be measured here.
"""

import argparse
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from bench import models, report
from bench.options import listed
from lead.benchmark.bench_program import NO_DRAFTS
from lead.planning.arrangements import Arrangement
from lead.planning.plan_program import QUESTIONS
from lead.planning.plan_report import describe
from shared import cpus
from shared.errors import ConfigError
from shared.python_child import ChildProcess, child_command

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
    target = models.target(options.target)
    rows = []
    for cost in options.costs:
        draft = models.draft(cost, target, str(cores[0]), str(cores[-1]))
        found = _compare(target, draft.path, options)
        report.show(
            f"{target.name}, draft cost {draft.ratio:.3f}, T={options.temperature:g}", found, _COLUMNS
        )
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
    pair = ["--model", str(target), "--draft-model", str(draft), "--temp", str(options.temperature)]
    plan = _result("plan", *pair)
    with NamedTemporaryFile("w", suffix=".txt") as prompts:
        prompts.write("\n".join(QUESTIONS))
        prompts.flush()
        asked = [
            "--prompts",
            prompts.name,
            "--n-predict",
            str(options.tokens),
            "--repeats",
            str(options.repeats),
        ]
        found = _result("bench", *pair, *asked, "--no-ngram")
    measured = {row["way"]: row["tokens_per_second"] for row in found["rows"]}
    return compare(plan, measured | {describe(Arrangement("none")): measured[NO_DRAFTS]})


def _result(subcommand: str, *arguments: str) -> dict[str, Any]:
    process = ChildProcess(child_command("lead", subcommand, *arguments, "--json"), stdout=subprocess.PIPE)
    found, _ = process.communicate()
    if process.returncode:
        raise ConfigError(f"lead {subcommand} failed")
    result: dict[str, Any] = json.loads(found)
    return result
