"""Requests one whole answer from an OpenAI-compatible server and reads the timings in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from bench.prompts import Prompt
from shared.errors import ConfigError

_TIMEOUT_S = 600.0
_NO_FILTERS = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


@dataclass(frozen=True, slots=True)
class Sampling:
    """Fields that all requests of a configuration share.

    default_filters: those of lead and llama-server, which are the same; else none truncates the distribution.
    """

    temperature: float
    n_tokens: int
    default_filters: bool = False

    def request(self, prompt: Prompt) -> dict[str, Any]:
        """The body of a chat request."""
        return {
            "messages": [{"role": "user", "content": prompt.text}],
            "max_tokens": self.n_tokens,
            "temperature": self.temperature,
            "seed": prompt.seed,
            **({} if self.default_filters else _NO_FILTERS),
        }


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured answer. `seconds` run from its first `n_first` tokens to its last, without the prompt."""

    text: str
    n_tokens: int
    seconds: float
    n_drafted: int = 0
    n_accepted: int = 0
    wait_seconds: float | None = None
    """How long the lead waited for drafts; None if it does not report it."""
    n_counted: int | None = None
    """Forward passes as counted by the server, including the prompt's; None if it does not report them."""
    n_first: int = 1
    """Tokens of the first step, whose time is the prompt's."""

    @property
    def n_timed(self) -> int:
        """Tokens that `seconds` are the time of."""
        return max(0, self.n_tokens - self.n_first)

    @property
    def n_steps(self) -> int:
        """Forward passes after the prompt's.

        If the server does not count them, they are estimated: each yields its accepted tokens and one more. A
        last pass that was cut short by the token limit is then missed.
        """
        if self.n_counted is not None:
            return max(0, self.n_counted - 1)
        return max(0, self.n_tokens - 1 - self.n_accepted)


def client(url: str) -> httpx.Client:
    """A client for a server on this machine; ignores proxies set in the environment."""
    return httpx.Client(base_url=url, timeout=_TIMEOUT_S, trust_env=False)


def ask(http: httpx.Client, prompt: Prompt, sampling: Sampling) -> Measurement:
    """Request a whole answer. Raises ConfigError with the server's message if it refuses."""
    response = http.post("/v1/chat/completions", json=sampling.request(prompt))
    if not response.is_success:
        raise ConfigError(f"{http.base_url} answered {response.status_code}: {response.text[:300]}")
    return read(response.json())


def read(answer: Mapping[str, Any]) -> Measurement:
    """Read an answer of the lead or llama-server; both use the same names in `timings`."""
    timings = answer["timings"]
    return Measurement(
        text=answer["choices"][0]["message"]["content"] or "",
        n_tokens=timings["predicted_n"],
        seconds=timings["predicted_ms"] / 1000,
        n_drafted=timings.get("draft_n", 0),
        n_accepted=timings.get("draft_n_accepted", 0),
        n_first=timings["predicted_n"] - n_timed(timings),
    )


def n_timed(timings: Mapping[str, Any]) -> int:
    """Tokens that `predicted_ms` is the time of: those after the first step.

    The lead's rate counts the same tokens, llama-server's the first one, too, which is all of its first step.
    """
    n_rated: int = round(timings["predicted_per_second"] * timings["predicted_ms"] / 1000)
    return max(0, min(n_rated, int(timings["predicted_n"]) - 1))
