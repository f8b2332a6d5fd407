"""What a client without a grammar notices of others whose grammars cost as much as is accepted.

One client asks for short answers, one after the other, alone, beside clients without a grammar and beside as
many with costly ones. The first token's ratio is that to beside clients without a grammar.
"""

import argparse
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench.processes import start_lead
from bench.stats import percentile
from bench.table import show

GRAMMARS: Mapping[str, str | None] = {
    "none": None,
    "ambiguous": 'root ::= s\ns ::= s s | "a" s "a" | "a" | s "a" s | "aa" | s s s',
    "one long mask": 'root ::= "x" "y" a\na ::= ' + " | ".join("a " * n for n in range(2, 40)) + " | [ -~]",
    "every byte a word": 'root ::= "[" ([^"\\\\]* ",")* "]"',
}
_TIMEOUT_S = 300.0
_BEGIN_S = 1.0
"""Until the others are generating."""
_LONG, _SHORT = 4000, 8
"""Tokens of an answer."""

_COLUMNS = {
    "grammar": ("grammar of the others", ""),
    "n_others": ("others", "d"),
    "first_ms": ("first token ms", ".1f"),
    "ratio": ("ratio", ".2f"),
    "worst_first_ms": ("worst", ".0f"),
    "between_ms": ("between ms", ".1f"),
    "worst_between_ms": ("worst", ".0f"),
}


@dataclass(slots=True)
class Latencies:
    """In seconds."""

    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)


def main(arguments: Sequence[str]) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="bench neighbour", description=__doc__)
    parser.add_argument("--model", help="a GGUF file (default: the lead's own)")
    parser.add_argument(
        "--others", type=int, nargs="*", default=[1, 3], help="clients beside the measured one"
    )
    parser.add_argument("--answers", type=int, default=5, help="measured answers in each turn")
    parser.add_argument("--turns", type=int, default=3, help="each grammar and number in turn, so many times")
    given = parser.parse_args(arguments)
    options = ["--parallel", str(max(given.others) + 1), "--print", "none", "--ctx-size", "16384"]
    lead, url = start_lead(*options, *(["--model", given.model] if given.model else []))
    with lead:
        cases = [(grammar, n) for n in given.others for grammar in GRAMMARS]
        measured = {case: Latencies() for case in cases}
        for _ in range(given.turns):
            for case in cases:
                _measure(url, *case, given.answers, measured[case])
    show("Beside costly grammars", [_row(measured, *case) for case in cases], _COLUMNS)


def _row(measured: Mapping[tuple[str, int], Latencies], grammar: str, n_others: int) -> dict[str, Any]:
    latencies, usual = measured[grammar, n_others], measured["none", n_others]
    first = percentile(latencies.first, 0.5)
    return {
        "grammar": grammar,
        "n_others": n_others,
        "first_ms": first * 1e3,
        "ratio": first / percentile(usual.first, 0.5),
        "worst_first_ms": max(latencies.first) * 1e3,
        "between_ms": percentile(latencies.between, 0.5) * 1e3,
        "worst_between_ms": max(latencies.between) * 1e3,
    }


def _measure(url: str, grammar: str, n_others: int, n_answers: int, latencies: Latencies) -> None:
    stop = threading.Event()
    others = [
        threading.Thread(target=_occupy, args=(url, GRAMMARS[grammar], i, stop)) for i in range(n_others)
    ]
    for other in others:
        other.start()
    time.sleep(_BEGIN_S)
    try:
        for i in range(n_answers):
            _time_answer(url, i, latencies)
    finally:
        stop.set()
        for other in others:
            other.join()


def _occupy(url: str, grammar: str | None, seed: int, stop: threading.Event) -> None:
    """Long answers, one after the other; a grammar that reaches its limit is begun again."""
    body = {"prompt": f"Once upon a time {seed}", "max_tokens": _LONG, "seed": seed, "ignore_eos": True}
    if grammar is not None:
        body["grammar"] = grammar
    while not stop.is_set():
        for _ in _events(url, body):
            if stop.is_set():
                break


def _time_answer(url: str, i: int, latencies: Latencies) -> None:
    body = {"prompt": f"{i}: the old lighthouse by the sea", "max_tokens": _SHORT, "ignore_eos": True}
    asked = previous = time.perf_counter()
    for n, _ in enumerate(_events(url, body)):
        now = time.perf_counter()
        (latencies.between if n else latencies.first).append(now - previous)
        previous = now
    assert previous > asked, "an answer without text"


def _events(url: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What a streamed completion says, errors included."""
    with httpx.stream(
        "POST", f"{url}/v1/completions", json={**body, "stream": True}, timeout=_TIMEOUT_S
    ) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))
