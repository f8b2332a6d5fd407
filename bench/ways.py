"""The ways to answer that the bench compares: policies of the lead, and llama-server."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx

from bench import peer
from bench.client import Measurement, Sampling, ask
from bench.cluster import Cores
from bench.contest import Way
from bench.policy import ADAPTIVE, OFF, Policy, choose, counters, grown
from bench.prompts import Prompt
from bench.summary import BASELINE
from shared.errors import ConfigError


def policy_way(
    http: httpx.Client,
    sampling: Sampling,
    policy: Policy,
    name: str | None = None,
    *,
    with_backs: bool = True,
) -> Way:
    """The lead under `policy`, which is chosen before every prompt.

    A lead that cannot change its policy while it runs keeps the one it was started with.
    """

    def answer(prompt: Prompt) -> Measurement:
        choose(http, policy)
        before = counters(http)
        measurement = ask(http, prompt, sampling)
        after = counters(http)
        n_steps = grown(before, after, "n_steps")
        return replace(
            measurement,
            wait_seconds=grown(before, after, "wait_seconds"),
            n_counted=None if n_steps is None else int(n_steps),
        )

    return Way(name or str(policy), answer, with_backs)


def baseline(http: httpx.Client, sampling: Sampling) -> Way:
    """The lead without drafts and without a connected back."""
    return policy_way(http, sampling, OFF, BASELINE, with_backs=False)


def lead_ways(
    http: httpx.Client, sampling: Sampling, policies: Sequence[str], depths: Sequence[int]
) -> list[Way]:
    """The named policies; sync and fixed at each depth. Raises ConfigError for an unknown name.

    Of a lead that cannot change its policy while it runs only the one it was started with can be measured.
    """
    if not choose(http, OFF):
        return [policy_way(http, sampling, OFF, "as started")]
    ways = []
    for name in policies:
        if name in {"sync", "fixed"}:
            ways += [policy_way(http, sampling, Policy(name, depth)) for depth in depths]
        elif name == "adaptive":
            ways.append(policy_way(http, sampling, ADAPTIVE))
        elif name == "off":
            ways.append(policy_way(http, sampling, OFF, "off, back connected"))
        else:
            raise ConfigError(f"policy {name!r}: choose from off, sync, fixed, adaptive")
    return ways


def peer_ways(  # noqa: PLR0917
    stack: ExitStack,
    binary: Path,
    target: Path,
    draft: Path,
    sampling: Sampling,
    cores: Cores,
    depths: Sequence[int],
) -> list[Way]:
    """llama-server alone and with the draft model at each depth, on the lead's cores and on all.

    Its depth is fixed when it starts, so there is one for each; idle ones take no time, and the weights in
    memory are shared. They run until `stack` is left.
    """
    help_text = peer.help_text(binary)
    ways = []
    for where, on in (("lead's cores", cores.lead), ("all cores", f"{cores.lead},{cores.back}")):
        drafting = [(f"-md {n}", peer.draft_arguments(help_text, draft, n)) for n in depths]
        plans: list[tuple[str, list[str]]] = [("alone", []), *drafting]
        for name, extra in plans:
            server = stack.enter_context(peer.Peer(binary, target, on, extra=extra))
            ways.append(_peer_way(f"{peer.NAME} {name}, {where}", server.http, sampling))
    return ways


def _peer_way(name: str, http: httpx.Client, sampling: Sampling) -> Way:
    return Way(name, lambda prompt: ask(http, prompt, sampling), with_backs=False)
