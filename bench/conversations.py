"""`python -m bench conversations`: several conversations with one lead, taken up in turns.

    python -m bench conversations --peer llama-server=PATH

There are more of them than slots. So what a turn must read, and what it generates beside, depends on where
the others are kept: in the prompt cache, in slots (`--cache-ram 0`), or nowhere. Each server has all cores
and goes on with its own answers; they take turns. The lead does not draft.
"""

import argparse
import random
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx

from bench import models, peer, report, table
from bench.client import client
from bench.processes import start_lead
from bench.prompts import preamble
from shared import cpus
from shared.errors import ConfigError

_N_SLOTS = 4
_LEADS = {"lead": (), "lead --cache-ram 0": ("--cache-ram", "0")}
_COLUMNS = {
    "way": ("way", ""),
    "turn": ("turn", "d"),
    "n_tokens": ("tokens of the text", "d"),
    "n_read": ("read", "d"),
    "read_ms": ("ms", ".0f"),
    "tokens_per_second": ("then tokens/s", ".1f"),
    "seconds": ("a turn, s", ".2f"),
    "lead_to_this": ("lead, of this", ".2f"),
}


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn of one conversation took. `n_read`: tokens of its prompt that were not cached."""

    way: str
    turn: int
    n_tokens: int
    n_read: int
    read_ms: float
    tokens_per_second: float
    seconds: float


def main(arguments: Sequence[str]) -> None:
    """Print a table, and one line of JSON. Raises ConfigError."""
    options = _parse(arguments)
    rows = summarize(_measure(options))
    table.show(f"{options.conversations} conversations, {_N_SLOTS} slots, {options.target}", rows, _COLUMNS)
    report.finish("conversations", rows, options)


def summarize(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """A row for each way and turn: medians over the conversations, and how much faster the lead's turn is."""
    cells = dict.fromkeys((each.turn, each.way) for each in turns)
    rows = [_median([each for each in turns if (each.turn, each.way) == cell]) for cell in sorted(cells)]
    of_lead = {row["turn"]: row["seconds"] for row in rows if row["way"] == "lead"}
    return [row | {"lead_to_this": row["seconds"] / of_lead[row["turn"]]} for row in rows]


def _median(turns: Sequence[Turn]) -> dict[str, Any]:
    return {
        "way": turns[0].way,
        "turn": turns[0].turn,
        "n_tokens": round(statistics.median(each.n_tokens for each in turns)),
        "n_read": round(statistics.median(each.n_read for each in turns)),
        "read_ms": statistics.median(each.read_ms for each in turns),
        "tokens_per_second": statistics.median(each.tokens_per_second for each in turns),
        "seconds": statistics.median(each.seconds for each in turns),
    }


class Conversation:
    """One user's conversation with one server."""

    def __init__(self, way: str, http: httpx.Client, opening: str) -> None:
        self._way, self._http = way, http
        self._messages = [{"role": "user", "content": opening}]
        self._n_turns = 0

    def take_turn(self, n_tokens: int) -> Turn:
        """Have the last message answered, and write the next one. Raises ConfigError."""
        body = {"messages": self._messages, "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True}
        response = self._http.post("/v1/chat/completions", json=body)
        if not response.is_success:
            raise ConfigError(f"{self._way} answered {response.status_code}: {response.text[:300]}")
        answer = response.json()
        self._n_turns += 1
        self._messages += [answer["choices"][0]["message"], {"role": "user", "content": "And then?"}]
        return read(self._way, self._n_turns, answer["timings"])


def read(way: str, turn: int, timings: Mapping[str, Any]) -> Turn:
    """From the `timings` of lead and llama-server."""
    return Turn(
        way,
        turn,
        n_tokens=timings["cache_n"] + timings["prompt_n"] + timings["predicted_n"],
        n_read=timings["prompt_n"],
        read_ms=timings["prompt_ms"],
        tokens_per_second=timings["predicted_per_second"],
        seconds=(timings["prompt_ms"] + timings["predicted_ms"]) / 1000,
    )


def _measure(options: argparse.Namespace) -> list[Turn]:
    rng = random.Random(options.seed)  # noqa: S311 - a seeded order is wanted
    turns = []
    with ExitStack() as stack:
        servers = _start(stack, options)
        openings = [preamble(options.words, options.seed + n) for n in range(options.conversations)]
        talks = [[Conversation(way, http, opening) for way, http in servers.items()] for opening in openings]
        for _ in range(options.turns):
            for same in talks:
                turns += [each.take_turn(options.tokens) for each in rng.sample(same, len(same))]
    return turns


def _start(stack: ExitStack, options: argparse.Namespace) -> dict[str, httpx.Client]:
    target, cores = models.target_or_file(options.target), cpus.one_of_each_core()
    servers = {}
    for name, more in _LEADS.items():
        lead, url = start_lead(
            *("--model", str(target), "--threads", str(len(cores)), "--policy", "off"),
            *("--ctx-size", str(options.ctx_size), "--parallel", str(_N_SLOTS), *more),
        )
        stack.enter_context(lead)
        servers[name] = stack.enter_context(client(url))
    if options.peer:
        extra = ("--kv-unified", "-c", str(options.ctx_size), "--cache-ram", "8192")
        on = ",".join(map(str, cores))
        started = peer.Peer(options.peer, target, on, n_slots=_N_SLOTS, extra=extra)
        servers[peer.NAME] = stack.enter_context(started).http
    return servers


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench conversations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    report.add_options(parser)
    parser.add_argument(
        "--peer", type=peer.find, metavar="llama-server=PATH", help="also measure this server"
    )
    parser.add_argument("--target", default="0.4G:f16", help="size:type, or a GGUF file")
    parser.add_argument("--conversations", type=int, default=6)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--words", type=int, default=300, help="of the first message of each")
    parser.add_argument("--tokens", type=int, default=48, help="of an answer")
    parser.add_argument("--ctx-size", type=int, default=8192, help="of each server, for all slots together")
    parser.add_argument("--seed", type=int, default=1)
    return report.parse(parser, arguments, {"conversations": 5, "turns": 2, "words": 100, "tokens": 16})
