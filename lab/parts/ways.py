"""The ways of answering that the benchmark compares: policies of the lead, and llama-server."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import httpx

from lab.measuring.contest import Way
from lab.measuring.measured_answer import MeasuredAnswer, Sampling, ask, client
from lab.measuring.questions import ChatQuestion
from lab.measuring.summary import BASELINE
from lab.parts.peer import NAME
from lab.parts.processes import start_lead
from shared.errors import ConfigError

_PATH = "/v1/speculation"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of the lead for drafts. depth: the depth of sync and fixed, and the maximum of adaptive."""

    name: str
    depth: int | None = None

    def __str__(self) -> str:
        return self.name if self.depth is None else f"{self.name} {self.depth}"


OFF = Policy("off")


def lead_within(stack: ExitStack, *arguments: str) -> tuple[str, httpx.Client]:
    """Return a lead that runs until `stack` is left: its URL, and a client. Raises ConfigError."""
    lead, url = start_lead(*arguments)
    stack.enter_context(lead)
    return url, stack.enter_context(client(url))


def choose(http: httpx.Client, policy: Policy) -> None:
    """Switch the lead to `policy`. Raises ConfigError."""
    depth = {} if policy.depth is None else {"depth": policy.depth}
    response = http.put(_PATH, json={"policy": policy.name, **depth})
    if not response.is_success:
        raise ConfigError(f"the lead refuses the policy {policy}: {response.text[:300]}")


def counters(http: httpx.Client) -> dict[str, Any]:
    """Return the planner's counters since the lead started. Raises ConfigError."""
    response = http.get(_PATH)
    planner: dict[str, Any] | None = response.json().get("planner") if response.is_success else None
    if planner is None:
        raise ConfigError(f"the lead's engine does not report its counters: {response.text[:300]}")
    return planner


def policy_way(http: httpx.Client, sampling: Sampling, policy: Policy, name: str | None = None) -> Way:
    """Return a way of answering: the lead under `policy`, which is set before every prompt."""

    def answer(question: ChatQuestion) -> MeasuredAnswer:
        choose(http, policy)
        before = counters(http)
        measurement = ask(http, question, sampling)
        after = counters(http)
        return replace(
            measurement,
            wait_seconds=after["wait_seconds"] - before["wait_seconds"],
            n_counted=after["n_steps"] - before["n_steps"],
        )

    return Way(name or str(policy), answer)


def at_once(way: Way, n_clients: int) -> Way:
    """Return a way with `n_clients` concurrent clients and as many prompts; measures their total."""

    def answer(question: ChatQuestion) -> MeasuredAnswer:
        questions = [replace(question, text=f"{i}. {question.text}") for i in range(n_clients)]
        began = time.perf_counter()
        with ThreadPoolExecutor(n_clients) as clients:
            answers = list(clients.map(way.ask, questions))
        return MeasuredAnswer(
            "\n".join(each.text for each in answers),
            sum(each.n_tokens for each in answers),
            time.perf_counter() - began,
            sum(each.n_drafted for each in answers),
            sum(each.n_accepted for each in answers),
            n_first=0,
            first_seconds=max((each.first_seconds or 0.0) for each in answers),
        )

    return way if n_clients == 1 else Way(way.name, answer)


def baseline(http: httpx.Client, sampling: Sampling) -> Way:
    """Return the baseline: the lead without drafts and without a connected back."""
    return policy_way(http, sampling, OFF, BASELINE)


def lead_ways(
    http: httpx.Client, sampling: Sampling, policies: Sequence[str], depths: Sequence[int]
) -> list[Way]:
    """Return the ways for the named policies; sync and fixed at each depth."""
    return [
        policy_way(http, sampling, Policy(name, depth))
        for name in policies
        for depth in (depths if name in {"sync", "fixed"} else [None])
    ]


def peer_ways(peers: Mapping[int, httpx.Client], sampling: Sampling, where: str = "") -> list[Way]:
    """Return the ways for llama-server, alone and with drafts of each length. where: added to their names."""
    return [
        Way(f"{NAME} {f'-md {depth}' if depth else 'alone'}{where}", partial(ask, http, sampling=sampling))
        for depth, http in peers.items()
    ]
