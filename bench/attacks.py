"""`python -m bench attacks`: hostile requests, made from the API's description, against a real lead.

Every field and list of every route gets values of wrong types, runs of one character, deep nesting, schemas
that refer to themselves, numbers of thousands of digits, bytes that are not JSON, in bodies that arrive
whole, in chunks, slowly or not at all. `--large BYTES` instead sends each list, object and text of every
route once in that size. Meanwhile /health is polled and the memory of all processes of the lead is watched;
at the end SIGTERM has to end it.
"""

import argparse
import asyncio
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from bench import report
from bench.attack.client import Outcome, send
from bench.attack.places import operations
from bench.attack.requests import Attack, Attacks, Delivery, described
from bench.attack.watch import Watch
from bench.processes import Program, start_lead
from lead.server.app import create_app
from shared.models.builtin import builtin_target
from shared.protocol import MAX_BACK_MESSAGE_BYTES

COLUMNS = {"what": ("what", ""), "value": ("value", "")}

_QUICK = {"requests": 300}
_ALLOWED = {HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.SERVICE_UNAVAILABLE}
"""Answers of 500 and more that are documented: what is not supported, and a full queue."""
_MAX_SHOWN = 20
_DRAIN_SECONDS = 10
_END_SECONDS = 30
"""After the drain a lead ends by itself within this time, whatever still runs."""
_LEAD = (
    *("--print", "none", "--drain-seconds", str(_DRAIN_SECONDS)),
    *("--ctx-size", "1024", "--parallel", "4"),
)
"""A short context: answers whose length a field leaves open end soon."""


@dataclass(slots=True)
class Tally:
    """What came back. `slowest` are the attacks that took longest, with their seconds."""

    statuses: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: list[tuple[float, str]] = field(default_factory=list)

    def add(self, number: int, attack: Attack, outcome: Outcome) -> None:
        """Count an answer; a failure is kept with the number that repeats it (`--first`)."""
        unread = attack.delivery in {Delivery.CUT, Delivery.LEFT}
        self.statuses["not read" if unread else str(outcome.status or "no answer")] += 1
        self.slowest = sorted([*self.slowest, (outcome.seconds, f"{number} {attack}")], reverse=True)[:5]
        if is_failure(attack, outcome):
            shown = f"{number}: {outcome.status} after {outcome.seconds:.1f} s, {described(attack)}"
            self.failures.append(f"{shown}\n  {outcome.text[-400:]}")


def is_failure(attack: Attack, outcome: Outcome) -> bool:
    """Whether the lead did what it must not do."""
    if attack.delivery in {Delivery.CUT, Delivery.LEFT}:
        return False
    if outcome.status is None:
        # A refusal may be lost if the server closes the connection while the body is still arriving.
        return not (outcome.was_reset and len(attack.body) > MAX_BACK_MESSAGE_BYTES)
    if outcome.failed:
        return True
    return outcome.status >= HTTPStatus.INTERNAL_SERVER_ERROR and outcome.status not in _ALLOWED


def main(arguments: Sequence[str]) -> None:
    """Attack, print tables and one line of JSON; status 1 if the lead failed in any way."""
    settings = _parse(arguments)
    lead, url = start_lead(*_LEAD, *(settings.lead_options or ("--model", str(builtin_target()))))
    with lead:
        rows, failures = run(lead, url, settings)
    report.show(f"attacks of seed {settings.seed}", rows, COLUMNS)
    for failure in failures[:_MAX_SHOWN]:
        print(failure)
    report.finish("attacks", rows, settings, failures=len(failures))
    if failures:
        sys.exit(1)


def run(lead: Program, url: str, settings: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    """Attack the lead and end it; rows of the table, and what must not have happened."""
    address = urlsplit(url)
    host, port = address.hostname or "", address.port or 0
    tally = Tally()
    # Ctrl-C: the tables of what was sent by then.
    with Watch(host, port, lead.process.pid) as watch, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_attack(host, port, numbered(settings), settings.clients, tally))
    begun = time.perf_counter()
    status = lead.stop()
    seconds = time.perf_counter() - begun
    rows = [*_rows(tally, watch), {"what": "seconds from SIGTERM to the end", "value": f"{seconds:.1f}"}]
    return rows, [*tally.failures, *_faults(watch, status, seconds)]


def numbered(settings: argparse.Namespace) -> Iterator[tuple[int, Attack]]:
    """The attacks that the settings ask for."""
    attacks = Attacks(operations(create_app().openapi()), settings.seed)
    if settings.large:
        chosen = (
            (number, attack)
            for number, attack in enumerate(attacks.large(settings.large))
            if settings.only in str(attack)
        )
        return islice(chosen, settings.first, None)
    end = settings.first + settings.requests
    return ((number, attacks.number(number)) for number in range(settings.first, end))


async def _attack(
    host: str, port: int, attacks: Iterator[tuple[int, Attack]], n_clients: int, tally: Tally
) -> None:
    async def client() -> None:
        for number, attack in attacks:  # all clients take from one iterator
            try:
                tally.add(number, attack, await send(host, port, attack))
            except OSError as error:
                tally.failures.append(f"{number}: {error} {described(attack)}")

    async with asyncio.TaskGroup() as group:
        for _ in range(n_clients):
            group.create_task(client())


def _rows(tally: Tally, watch: Watch) -> list[dict[str, Any]]:
    rows = [{"what": "requests", "value": str(tally.statuses.total())}]
    rows += [{"what": f"answers: {name}", "value": str(n)} for name, n in sorted(tally.statuses.items())]
    rows.append({"what": "slowest /health, seconds", "value": f"{watch.slowest_health:.2f}"})
    for name, peak in sorted(watch.peak.items()):
        sizes = (watch.first.get(name, 0.0), peak, watch.last.get(name, 0.0))
        value = "{:.0f}, {:.0f}, {:.0f}".format(*sizes)
        rows.append({"what": f"memory of {name} at first, at most, at last, MB", "value": value})
    rows += [{"what": f"slowest: {what[:100]}", "value": f"{seconds:.2f}"} for seconds, what in tally.slowest]
    return rows


def _faults(watch: Watch, status: int, seconds: float) -> Iterator[str]:
    if watch.n_unhealthy:
        yield f"/health: {watch.n_unhealthy} times no 200"
    if status:
        yield f"the lead ended with status {status}"
    if seconds > _DRAIN_SECONDS + _END_SECONDS:
        yield f"the lead took {seconds:.1f} s to end"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench attacks", description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first request, to repeat one")
    parser.add_argument("--clients", type=int, default=8, help="connections at a time")
    parser.add_argument("--large", type=int, metavar="BYTES", help="send large bodies of this size instead")
    parser.add_argument("--only", default="", help="with --large: only requests with this text in their name")
    parser.add_argument(
        "--lead-options",
        type=str.split,
        default=[],
        help="options of the lead (default: the small shipped model)",
    )
    report.add_options(parser)
    return report.parse(parser, arguments, _QUICK)
