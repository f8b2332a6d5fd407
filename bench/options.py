"""Reading lists on the command line, and the options of parts that ask prompts."""

import argparse
from collections.abc import Callable
from typing import TypeVar

from bench.cluster import Cores
from bench.processes import split_cores
from bench.prompts import KINDS
from shared import cpus

Item = TypeVar("Item")


def listed(item: Callable[[str], Item]) -> Callable[[str], list[Item]]:
    """An argparse type: items with commas between them."""

    def parse(text: str) -> list[Item]:
        return [item(part.strip()) for part in text.split(",") if part.strip()]

    parse.__name__ = f"list of {getattr(item, '__name__', 'items')}"
    return parse


def kind(text: str) -> str:
    """A kind of prompt."""
    if text not in KINDS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(KINDS)}")
    return text


def add_course_options(parser: argparse.ArgumentParser) -> None:
    """What is asked, how often and where."""
    parser.add_argument("--kinds", type=listed(kind), default=list(KINDS), help="kinds of prompts")
    parser.add_argument("--prompts", type=int, default=1, help="prompts of each kind in a repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=96, help="most tokens of an answer")
    parser.add_argument("--seed", type=int, default=1, help="of prompts and their order")
    parser.add_argument("--lead-cpus", help="cores of the lead's machine; without it all but the last")
    parser.add_argument("--back-cpus", help="cores of the backs' machine; without it the last")


def cores(arguments: argparse.Namespace) -> Cores:
    """Which cores play which machine."""
    lead, back = split_cores(sorted(cpus.usable()))
    return Cores(arguments.lead_cpus or lead, arguments.back_cpus or back)
