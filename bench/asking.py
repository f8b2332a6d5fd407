"""Asking an OpenAI-compatible server for one whole answer, and reading what it says about its speed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from bench.prompts import Prompt
from shared.errors import ConfigError

_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Sampling:
    """What all requests of a configuration share. Above temperature 0 nothing is truncated."""

    temperature: float
    n_tokens: int

    def request(self, prompt: Prompt) -> dict[str, Any]:
        """The body of a chat request."""
        return {
            "messages": [{"role": "user", "content": prompt.text}],
            "max_tokens": self.n_tokens,
            "temperature": self.temperature,
            "top_k": 0,
            "top_p": 1.0,
            "min_p": 0.0,
            "seed": prompt.seed,
        }


@dataclass(frozen=True, slots=True)
class Reading:
    """One answer. `seconds` run from its first token to its last: the prompt does not count.

    `drafted` says of each token whether it came from a draft; empty where the server does not tell.
    """

    text: str
    n_tokens: int
    seconds: float
    n_drafted: int = 0
    n_accepted: int = 0
    drafted: tuple[bool, ...] = ()
    wait_seconds: float | None = None
    """Of the lead, for drafts; None where it is not known."""
    n_counted: int | None = None
    """Forward passes as the server counted them, with the prompt's one; None where it does not."""

    @property
    def n_steps(self) -> int:
        """Forward passes after the prompt's.

        Where they were not counted: each gives the accepted tokens and one more, so that a last one that the
        limit cut short is missed.
        """
        if self.n_counted is not None:
            return max(0, self.n_counted - 1)
        return max(0, self.n_tokens - 1 - self.n_accepted)


def client(url: str) -> httpx.Client:
    """Connections to a server on this machine: no proxy of the environment leads back to it."""
    return httpx.Client(base_url=url, timeout=_TIMEOUT_S, trust_env=False)


def ask(http: httpx.Client, prompt: Prompt, sampling: Sampling) -> Reading:
    """A whole answer. Raises ConfigError with the server's words if it refuses."""
    response = http.post("/v1/chat/completions", json=sampling.request(prompt) | {"return_speculation": True})
    if not response.is_success:
        raise ConfigError(f"{http.base_url} answered {response.status_code}: {response.text[:300]}")
    return read(response.json())


def read(answer: Mapping[str, Any]) -> Reading:
    """An answer of lead or llama-server; both name their `timings` alike."""
    timings = answer["timings"]
    tokens = answer.get("speculation", {}).get("tokens", [])
    return Reading(
        text=answer["choices"][0]["message"]["content"] or "",
        n_tokens=timings["predicted_n"],
        seconds=timings["predicted_ms"] / 1000,
        n_drafted=timings.get("draft_n", 0),
        n_accepted=timings.get("draft_n_accepted", 0),
        drafted=tuple(token["source"] is not None for token in tokens),
    )
