"""`python -m bench serve`: throughput and latency over HTTP for 1 to 16 concurrent clients.

Each client streams one answer after the other. No back by default; the same load goes to llama-server with
as many slots, on the same cores, the servers taking turns.
"""

import argparse
import asyncio
import shlex
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from typing import Any

from bench import models, options, peer, report
from bench.cluster import BackPlan, Cluster, Cores
from bench.load import Load, put_on
from bench.options import listed
from bench.ways import Policy, choose
from lead.benchmark.builtin_questions import preamble, rounds_of
from lead.benchmark.measured_answer import Sampling
from lead.benchmark.questions import ChatQuestion, hash_seed
from shared.models.builtin import builtin_draft

COLUMNS = {
    "server": ("server", ""),
    "n_clients": ("clients", "d"),
    "tokens_per_second": ("tokens/s", ".1f"),
    "against_peer": ("of llama-server's", ".3f"),
    "read_per_second": ("read/s", ".0f"),
    "read_against_peer": ("of llama-server's", ".3f"),
    "first_ms_p50": ("first token p50, ms", ".0f"),
    "first_ms_p95": ("p95", ".0f"),
    "first_ms_max": ("worst", ".0f"),
    "between_ms_p50": ("between p50, ms", ".0f"),
    "between_ms_p95": ("p95", ".0f"),
}

_LEAD = "lead"
_QUICK = {"clients": [1, 4, 8], "answers": 1, "repeats": 1, "tokens": 24}
_WARM_UP_TOKENS = 8


def main(arguments: Sequence[str]) -> None:
    """Measure, print a table and one line of JSON."""
    settings = _parse(arguments)
    cores = options.cores(settings)
    loads = _measure(settings, cores)
    records = compare(loads)
    report.show(f"{settings.target}, {settings.tokens} tokens an answer", records, COLUMNS)
    report.finish("serve", records, settings, cores=asdict(cores))


def compare(loads: Sequence[Load]) -> list[dict[str, Any]]:
    """One record per server and number of clients: medians of the repeats, and ratios to llama-server."""
    cells = dict.fromkeys((load.server, load.n_clients) for load in loads)
    records = [
        _median([load for load in loads if (load.server, load.n_clients) == cell]) for cell in sorted(cells)
    ]
    peers = {r["n_clients"]: r for r in records if r["server"] == peer.NAME}
    for record in records:
        other = peers.get(record["n_clients"], {}) if record["server"] != peer.NAME else {}
        for name, figure in (("against_peer", "tokens_per_second"), ("read_against_peer", "read_per_second")):
            record[name] = record[figure] / other[figure] if other.get(figure) else None
    return records


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench serve", description=__doc__)
    _add_load_options(parser)
    _add_server_options(parser)
    options.add_workload_options(parser)
    report.add_options(parser)
    settings = report.parse(parser, arguments, _QUICK)
    if settings.back and settings.all_cores:
        parser.error("--back needs the cores that --all-cores gives away")
    return settings


def _add_load_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--clients", type=listed(int), default=[1, 2, 4, 8, 16], help="numbers of concurrent clients"
    )
    parser.add_argument("--answers", type=int, default=2, help="answers per client")
    parser.add_argument(
        "--preamble",
        type=int,
        default=0,
        metavar="WORDS",
        help="length of a text with which all prompts begin",
    )
    parser.add_argument(
        "--own-words",
        type=int,
        default=0,
        metavar="WORDS",
        help="length of a text with which each prompt begins, another one for each",
    )


def _add_server_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default="0.4G:f16", help="size:type, or a GGUF file")
    parser.add_argument(
        "--back", action="store_true", help="connect a back with the shipped draft model, on the back's cores"
    )
    parser.add_argument(
        "--policy",
        choices=("off", "adaptive"),
        help="policy of the lead (default: adaptive with a back, else off)",
    )
    parser.add_argument(
        "--lead-options",
        type=shlex.split,
        default=[],
        help="further options of the lead; llama-server's own are '--no-kv-unified -fa on'",
    )
    parser.add_argument(
        "--slot-ctx", type=int, default=2048, metavar="TOKENS", help="context for each client"
    )
    parser.add_argument("--all-cores", action="store_true", help="let the servers use the back's cores, too")
    parser.add_argument(
        "--peer", type=peer.find, metavar="llama-server=PATH", help="also measure this server"
    )
    parser.add_argument(
        "--peer-options", type=shlex.split, default=[], help="further options of llama-server"
    )


def _measure(settings: argparse.Namespace, cores: Cores) -> list[Load]:
    if settings.all_cores:
        cores = Cores(f"{cores.lead},{cores.back}", cores.back)
    target, n_slots = models.target(settings.target), max(settings.clients)
    sampling = Sampling(0.0, settings.tokens)
    loads: list[Load] = []
    with ExitStack() as stack:
        cluster = stack.enter_context(
            Cluster(
                target, cores, n_parallel=n_slots, n_ctx_slot=settings.slot_ctx, options=settings.lead_options
            )
        )
        choose(cluster.http, Policy(settings.policy or ("adaptive" if settings.back else "off")))
        urls = {_LEAD: cluster.url}
        if settings.back:
            plan = BackPlan(builtin_draft(), "back")
            stack.enter_context(cluster.connected([plan]))
        if settings.peer:
            server = stack.enter_context(
                peer.Peer(
                    settings.peer,
                    target,
                    cores.lead,
                    n_slots=n_slots,
                    n_ctx_slot=settings.slot_ctx,
                    extra=settings.peer_options,
                )
            )
            urls[peer.NAME] = server.url
        for name, url in urls.items():
            asyncio.run(put_on(url, name, _prompts(settings, 1, -1), Sampling(0.0, _WARM_UP_TOKENS)))
        for repeat in range(settings.repeats):
            for n_clients in settings.clients:
                prompts = _prompts(settings, n_clients, repeat)
                for name in list(urls) if repeat % 2 == 0 else reversed(list(urls)):
                    _tell(f"repeat {repeat + 1} of {settings.repeats}: {n_clients} clients, {name}")
                    loads.append(asyncio.run(put_on(urls[name], name, prompts, sampling)))
    return loads


def _prompts(settings: argparse.Namespace, n_clients: int, repeat: int) -> list[list[ChatQuestion]]:
    """New prompts for each client, repeat and number of clients."""
    n_prompts = n_clients * settings.answers
    n_each = -(-n_prompts // len(settings.kinds))
    seed = hash_seed(settings.seed, 100 * (repeat + 1) + n_clients)
    (prompts,) = rounds_of(settings.kinds, n_each, 1, seed)
    if settings.own_words:
        prompts = [
            replace(prompt, text=f"{preamble(settings.own_words, hash_seed(seed, i))}\n\n{prompt.text}")
            for i, prompt in enumerate(prompts)
        ]
    if settings.preamble:
        beginning = preamble(settings.preamble, seed)
        prompts = [replace(prompt, text=f"{beginning}\n\n{prompt.text}") for prompt in prompts]
    return [prompts[client:n_prompts:n_clients] for client in range(n_clients)]


def _median(loads: Sequence[Load]) -> dict[str, Any]:
    record: dict[str, Any] = {"server": loads[0].server, "n_clients": loads[0].n_clients}
    for entry in fields(Load)[2:]:
        record[entry.name] = statistics.median(getattr(load, entry.name) for load in loads)
    return record


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
