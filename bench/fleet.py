"""`make fleet`: two leads with a back each, behind SMG and HAProxy as deploy/fleet sets them up; then a chat.

With --overhead it measures instead what the routers add to the first token and to each further one; also
Ray Serve, with a lead of its own, where the extra `ray` is installed.
"""

import argparse
import secrets
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bench import report, table
from bench.client import client
from bench.foreground import run_in_foreground
from bench.processes import Program, start_back, start_lead
from bench.routers import haproxy, has_ray, smg_python, start_haproxy, start_ray, start_smg
from shared import cpus
from shared.errors import ConfigError
from shared.models.builtin import builtin_target

_NOWHERE = "127.0.0.1:1"
"""Nothing listens there: HAProxy then chooses the leads by itself."""
_QUESTION = "Tell me a story about a fox who lives by the sea."
_WAYS = ("SMG and HAProxy", "SMG", "HAProxy")
"""The first one that can be had is shown."""
_COLUMNS = {
    "way": ("way", ""),
    "first_ms": ("first token, ms", ".2f"),
    "first_more_ms": ("more than direct", ".2f"),
    "token_ms": ("per token, ms", ".3f"),
    "token_more_ms": ("more than direct", ".3f"),
}


@dataclass(frozen=True)
class Fleet:
    """`ways`: URLs by what is between them and the leads."""

    ways: dict[str, str]
    key_file: Path


def main(arguments: Sequence[str]) -> None:
    """Start everything, then chat (or ask once, without a terminal), or measure."""
    settings = _parse(arguments)
    if smg_python() is None and haproxy() is None and not (settings.overhead and has_ray()):
        raise ConfigError("neither SMG (make router) nor haproxy (apt install haproxy) is installed")
    with running(with_backs=not settings.overhead) as fleet:
        if settings.overhead:
            _report_overhead(fleet, settings)
            return
        way = next(way for way in _WAYS if way in fleet.ways)
        _say(fleet, way)
        chat = [
            sys.executable,
            "-m",
            "chat",
            "--lead",
            fleet.ways[way],
            "--api-key-file",
            str(fleet.key_file),
        ]
        if sys.stdin.isatty() and sys.stdout.isatty():
            run_in_foreground(chat)
        else:
            subprocess.run([*chat, _QUESTION], check=True)


@contextmanager
def running(*, with_backs: bool) -> Iterator[Fleet]:
    """The programs, each lead on a core of its own as far as there are enough."""
    cores = sorted(cpus.usable())
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        key_file = Path(folder) / "api"
        key_file.write_text(f"{secrets.token_hex(24)}\n")
        key_file.chmod(0o600)
        back_key = secrets.token_hex(24)
        urls = []
        for number in range(2):
            lead, url = start_lead(*_lead_arguments(str(cores[number % len(cores)]), key_file, back_key))
            stack.enter_context(lead)
            urls.append(url)
            if with_backs:
                stack.enter_context(
                    start_back(url, "--name", f"back-{number}", "--key", back_key, "--threads", "1")
                )
        ways = {"direct": urls[0]} | dict(_routers(stack, urls, key_file))
        if not with_backs and has_ray():
            ways["Ray Serve"] = _start_ray(
                stack, _lead_arguments(str(cores[0]), key_file, back_key), key_file
            )
        yield Fleet(ways, key_file)


def _lead_arguments(core: str, key_file: Path, back_key: str) -> list[str]:
    return [
        *("--model", str(builtin_target()), "--alias", "fleet", "--cpus", core, "--threads", "1"),
        *("--api-key-file", str(key_file), "--back-key", back_key),
    ]


def _routers(stack: ExitStack, leads: Sequence[str], key_file: Path) -> Iterator[tuple[str, str]]:
    def run(started: tuple[Program, str]) -> str:
        program, url = started
        stack.enter_context(program)
        return url

    python, binary = smg_python(), haproxy()
    if binary:
        yield "HAProxy", run(start_haproxy(binary, leads, key_file, _NOWHERE))
    if python:
        smg = run(start_smg(python, leads, key_file))
        yield "SMG", smg
        if binary:
            yield "SMG and HAProxy", run(start_haproxy(binary, leads, key_file, smg))


def _start_ray(stack: ExitStack, lead: Sequence[str], key_file: Path) -> str:
    """Its lead runs where the direct one does; the two never answer at the same time."""
    own = lead[: lead.index("--api-key-file")]
    program, url = start_ray(lead=shlex.join(own), key_file=str(key_file))
    stack.enter_context(program)
    return url


def _say(fleet: Fleet, way: str) -> None:
    print("Two leads with the small model that ships with llama-duo, and a back for each. Ways in:\n")
    for name, url in fleet.ways.items():
        print(f"  {name:<16} {url}/v1")
    print(f"\nThe key is in {fleet.key_file} until this ends. The chat goes through {way}.\n", flush=True)


# Overhead


@dataclass(frozen=True)
class Answer:
    """Seconds until the first token, and between tokens on average."""

    first: float
    each: float


def _report_overhead(fleet: Fleet, settings: argparse.Namespace) -> None:
    answers = _measure(fleet, settings.repeats, settings.tokens)
    records = compare(answers)
    table.show(f"{settings.repeats} answers of {settings.tokens} tokens, medians", records, _COLUMNS)
    report.finish("fleet", records, settings)


def compare(answers: dict[str, list[Answer]]) -> list[dict[str, Any]]:
    """For each way: medians in milliseconds, also of the differences to the same round's direct answer."""
    direct = answers["direct"]
    return [
        {
            "way": way,
            "first_ms": 1000 * statistics.median(each.first for each in found),
            "first_more_ms": 1000 * _median_difference([a.first for a in found], [a.first for a in direct]),
            "token_ms": 1000 * statistics.median(each.each for each in found),
            "token_more_ms": 1000 * _median_difference([a.each for a in found], [a.each for a in direct]),
        }
        for way, found in answers.items()
    ]


def _median_difference(values: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(value - other for value, other in zip(values, others, strict=True))


def _measure(fleet: Fleet, n_repeats: int, n_tokens: int) -> dict[str, list[Answer]]:
    """All ways take turns, each over one connection. The first round is not counted: it fills the caches."""
    key = fleet.key_file.read_text().strip()
    answers: dict[str, list[Answer]] = {way: [] for way in fleet.ways}
    with ExitStack() as stack:
        clients = {way: stack.enter_context(client(url)) for way, url in fleet.ways.items()}
        for _ in range(n_repeats + 1):
            for way, http in clients.items():
                answers[way].append(_time(http, key, n_tokens))
    return {way: found[1:] for way, found in answers.items()}


def _time(http: httpx.Client, key: str, n_tokens: int) -> Answer:
    request = {
        "model": "fleet",
        "messages": [{"role": "user", "content": _QUESTION}],
        "max_tokens": n_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "speculative.n_max": 0,
    }
    headers = {"Authorization": f"Bearer {key}"}
    started = time.perf_counter()
    with http.stream("POST", "/v1/chat/completions", json=request, headers=headers) as response:
        if not response.is_success:
            raise ConfigError(f"{http.base_url} answered {response.status_code}: {response.read()[:300]!r}")
        times = [time.perf_counter() for line in response.iter_lines() if '"content":"' in line]
    return Answer(times[0] - started, (times[-1] - times[0]) / (len(times) - 1))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench fleet", description=__doc__)
    parser.add_argument("--overhead", action="store_true", help="measure instead of chatting")
    parser.add_argument("--repeats", type=int, default=40, help="answers by each way")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of an answer")
    report.add_options(parser)
    return report.parse(parser, arguments, {"repeats": 5})
