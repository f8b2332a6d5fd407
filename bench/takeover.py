"""`python -m bench takeover`: whether clients lose answers while one lead replaces another, again and again.

Each client asks, reads the whole answer and asks again, on connections that are kept. A back on the same
machine moves from lead to lead.
"""

import argparse
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from bench import options, report
from bench.client import client
from bench.processes import Program, ProgramError, start_back, start_lead
from shared.errors import ConfigError

_TEXT = "Once upon a time"
_QUICK = {"times": 2}


class Clients:
    """Threads that ask until they are stopped; `outcomes` counts answers and each kind of error."""

    def __init__(self, url: str, n: int, n_tokens: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self.texts: set[str] = set()
        self._url, self._n_tokens = url, n_tokens
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run) for _ in range(n)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Wait for the answers under way."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        with client(self._url) as http:
            while not self._stopping.is_set():
                outcome = self._ask(http)
                with self._lock:
                    self.outcomes[outcome] += 1

    def _ask(self, http: httpx.Client) -> str:
        body = {"prompt": _TEXT, "max_tokens": self._n_tokens, "temperature": 0, "ignore_eos": True}
        try:
            response = http.post("/v1/completions", json=body)
        except httpx.HTTPError as error:
            return f"{type(error).__name__}: {error}"
        if response.status_code != httpx.codes.OK:
            return f"{response.status_code}: {response.text[:100]}"
        self.texts.add(response.json()["choices"][0]["text"])
        return "answered"


def main(arguments: Sequence[str]) -> None:
    """Replace the lead, print what the clients saw and one line of JSON."""
    settings = _parse(arguments)
    try:
        clients = _replace_under_load(settings)
    except ProgramError as error:
        raise ConfigError(str(error)) from error
    row = {
        "takeovers": settings.times,
        "clients": settings.clients,
        "texts": len(clients.texts),
        **clients.outcomes,
    }
    print(row)
    report.finish("takeover", [row], settings, within_bounds=set(clients.outcomes) == {"answered"})


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench takeover", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="the lead's, with the shipped vocabulary")
    parser.add_argument("--times", type=int, default=10, help="how often the lead is replaced")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32, help="tokens of an answer")
    parser.add_argument("--lead-cpus", help="cores for the leads (default: all but the last)")
    parser.add_argument("--back-cpus", help="cores for the back (default: the last)")
    report.add_options(parser)
    return report.parse(parser, arguments, _QUICK)


def _replace_under_load(settings: argparse.Namespace) -> Clients:
    cores = options.cores(settings)
    fixed = (
        *("--model", str(settings.model), "--cpus", cores.lead, "--threads", "1", "--parallel", "4"),
        *("--ctx-size", "2048", "--print", "none", "--cache-type-k", "f32", "--cache-type-v", "f32"),
    )
    lead, url = start_lead(*fixed)
    address = ("--port", str(urlsplit(url).port), "--takeover")
    with start_back(url, "--cpus", cores.back):
        clients = Clients(url, settings.clients, settings.tokens)
        try:
            for number in range(settings.times):
                lead = _replace(lead, *fixed, *address)
                print(f"takeover {number + 1}: {dict(clients.outcomes)}", file=sys.stderr, flush=True)
        finally:
            clients.stop()
            lead.stop()
    return clients


def _replace(old: Program, *arguments: str) -> Program:
    new = Program("lead", *arguments)
    try:
        new.wait_for(r" ready: ")
        old.wait_for("another lead has taken over")
        old.process.wait()
        new.wait_for("back .* joined")
    except BaseException:
        new.stop()
        old.stop()
        raise
    old.stop()
    return new
