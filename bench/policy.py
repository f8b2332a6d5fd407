"""Choosing the policy of a running lead and reading its counters."""

from dataclasses import dataclass
from typing import Any

import httpx

from shared.errors import ConfigError

_PATH = "/v1/speculation"


@dataclass(frozen=True, slots=True)
class Policy:
    """How the lead uses drafts; `depth` is that of sync and fixed, and the maximum of adaptive."""

    name: str
    depth: int | None = None

    def __str__(self) -> str:
        return self.name if self.depth is None else f"{self.name} {self.depth}"


OFF = Policy("off")
ADAPTIVE = Policy("adaptive")


def choose(http: httpx.Client, policy: Policy) -> bool:
    """Switch the lead to `policy`; False if this lead cannot change its policy while it runs."""
    body: dict[str, Any] = {"policy": policy.name}
    if policy.depth is not None:
        body["depth"] = policy.depth
    response = http.put(_PATH, json=body)
    if response.status_code in {httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED}:
        return False
    if not response.is_success:
        raise ConfigError(f"the lead does not take the policy {policy}: {response.text[:300]}")
    return True


def counters(http: httpx.Client) -> dict[str, Any]:
    """The planner's counters since the lead started; empty if the lead has none."""
    response = http.get(_PATH)
    if not response.is_success:
        return {}
    planner: dict[str, Any] = response.json().get("planner") or {}
    return planner


def grown(before: dict[str, Any], after: dict[str, Any], counter: str) -> float | None:
    """By how much a counter grew; None if the lead does not have it."""
    if counter not in after:
        return None
    return float(after[counter]) - float(before.get(counter, 0.0))
