"""Lists on the command line, and the options that parts with prompts share."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lab.measuring.builtin_questions import KINDS
from lab.measuring.questions import PUBLIC_SETS
from lab.parts.models import SHIPPED
from lab.parts.processes import split_cores
from shared import cpus

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores of the lead and of the backs, in the syntax of `--cpus`."""

    lead: str
    back: str


def listed(item: Callable[[str], Item]) -> Callable[[str], list[Item]]:
    """Return an argparse type: items separated by commas."""

    def parse(text: str) -> list[Item]:
        return [item(part.strip()) for part in text.split(",") if part.strip()]

    parse.__name__ = f"list of {getattr(item, '__name__', 'items')}"
    return parse


def kind(text: str) -> str:
    """Parse a kind of prompt, or a source of prompts (`rounds_of`)."""
    if text not in {*KINDS, *PUBLIC_SETS} and not Path(text).is_file():
        known = ", ".join([*KINDS, *PUBLIC_SETS])
        raise argparse.ArgumentTypeError(f"{text!r} is neither one of {known}, nor a file")
    return text


def draft_cost(text: str) -> str:
    """Parse a draft model as `models.draft` takes it."""
    if text != SHIPPED and not Path(text).is_file() and not 0 < float(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither shipped, nor a file, nor between 0 and 1")
    return text


def add_workload_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for prompts, repeats and cores."""
    parser.add_argument("--kinds", type=listed(kind), default=list(KINDS), help="kinds of prompts")
    parser.add_argument("--prompts", type=int, default=1, help="prompts of each kind in a repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=96, help="maximum number of tokens in an answer")
    parser.add_argument("--seed", type=int, default=1, help="seed of the prompts and their order")
    parser.add_argument("--lead-cpus", help="cores for the lead (default: all but the last)")
    parser.add_argument("--back-cpus", help="cores for the backs (default: the last)")


def cores(arguments: argparse.Namespace) -> Cores:
    """Return the cores for the lead and for the backs."""
    lead, back = split_cores(sorted(cpus.usable()))
    return Cores(arguments.lead_cpus or lead, arguments.back_cpus or back)
