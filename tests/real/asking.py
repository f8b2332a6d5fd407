"""Asking a real lead over HTTP: whole answers, and streams that are watched while they run."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

PROMPT = "Tell me a story about a fox named Zorvi who gets lost, with a red umbrella."
N_TOKENS = 120
ENDLESS = 2000
"""More tokens than any test waits for; fewer than the context has."""


def chat(prompt: str = PROMPT, **fields: Any) -> dict[str, Any]:
    """A chat request that goes on for all of its tokens, whatever the model would do."""
    request = {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": N_TOKENS,
        "ignore_eos": True,
        "temperature": 0,
        "seed": 1,
    }
    return request | fields


@dataclass
class Told:
    """What a client got. `sources` are those of the tokens that were drafted."""

    text: str = ""
    sources: set[str] = field(default_factory=set)
    n_accepted: int = 0
    n_drafted: int = 0
    n_prompt: int = 0
    n_cached: int = 0
    n_generated: int = 0
    finish_reason: str | None = None
    error: dict[str, Any] | None = None
    done: bool = False

    def take(self, event: dict[str, Any]) -> None:
        self.error = event.get("error", self.error)
        for choice in event.get("choices", []):
            self.text += choice.get("delta", {}).get("content") or ""
            self.finish_reason = choice["finish_reason"] or self.finish_reason
        for token in event.get("speculation", {}).get("tokens", []):
            if token["source"]:
                self.sources.add(token["source"])
        self.take_usage(event.get("usage"))

    def take_usage(self, usage: dict[str, Any] | None) -> None:
        if usage:
            details = usage["completion_tokens_details"]
            self.n_accepted = details["accepted_prediction_tokens"]
            self.n_drafted = self.n_accepted + details["rejected_prediction_tokens"]
            self.n_prompt = usage["prompt_tokens"]
            self.n_cached = usage["prompt_tokens_details"]["cached_tokens"]
            self.n_generated = usage["completion_tokens"]


class Stream:
    """One streamed answer; `told` is what has arrived."""

    def __init__(self, response: httpx.Response) -> None:
        self.told = Told()
        self._events = self._read(response.iter_lines())

    def until(self, enough: Callable[[Told], object]) -> Self:
        """Read on until `enough`; the stream must not end before."""
        while not enough(self.told):
            event = next(self._events, None)
            assert event is not None, f"the stream ended with {self.told}"
            self.told.take(event)
        return self

    def rest(self) -> Told:
        """Read to the end."""
        for event in self._events:
            self.told.take(event)
        return self.told

    def _read(self, lines: Iterator[str]) -> Iterator[dict[str, Any]]:
        for line in lines:
            if line == "data: [DONE]":
                self.told.done = True
            elif line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


@contextmanager
def stream(url: str, **fields: Any) -> Iterator[Stream]:
    """A streamed answer; leaving the context hangs up."""
    extra = {"stream": True, "stream_options": {"include_usage": True}, "return_speculation": True}
    with (
        httpx.Client(trust_env=False, timeout=60) as client,
        client.stream("POST", f"{url}/v1/chat/completions", json=chat(**fields) | extra) as response,
    ):
        assert response.status_code == 200, response.read()
        yield Stream(response)


def ask(url: str, **fields: Any) -> Told:
    """A whole answer."""
    response = post(url, chat(**fields))
    assert response.status_code == 200, response.text
    body = response.json()
    (choice,) = body["choices"]
    told = Told(text=choice["message"]["content"], finish_reason=choice["finish_reason"], done=True)
    told.take_usage(body["usage"])
    return told


def post(url: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60, trust_env=False)


def backs(url: str) -> list[dict[str, Any]]:
    """The lead's list of connected backs."""
    listed: list[dict[str, Any]] = httpx.get(f"{url}/v1/speculation", trust_env=False).json()["backs"]
    return listed
