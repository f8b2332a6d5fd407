"""Requests to a real lead over HTTP: whole answers, and streams that are watched while they run."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

PROMPT = "Tell me a story about a fox named Zorvi who gets lost, with a red umbrella."
N_TOKENS = 80
ENDLESS = 2000
"""More tokens than any test waits for; fewer than the context has."""
TIMEOUT_S = 240.0
"""How long a lead may be silent on a machine that is busy with other things; pytest's own limit is longer."""
MOST_ANSWERS = 60
"""How many answers a back on a busy machine gets to have a draft token accepted; usually one is enough."""


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
class Reply:
    """What a client has received. `sources` are those of the tokens that were drafted."""

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
    """One streamed answer; `reply` is what has arrived."""

    def __init__(self, response: httpx.Response) -> None:
        self.reply = Reply()
        self._events = self._read(response.iter_lines())

    def until(self, enough: Callable[[Reply], object]) -> Self:
        """Read on until `enough`, or to the end."""
        while not enough(self.reply) and (event := next(self._events, None)) is not None:
            self.reply.take(event)
        return self

    def rest(self) -> Reply:
        """Read to the end."""
        for event in self._events:
            self.reply.take(event)
        return self.reply

    def _read(self, lines: Iterator[str]) -> Iterator[dict[str, Any]]:
        for line in lines:
            if line == "data: [DONE]":
                self.reply.done = True
            elif line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


@contextmanager
def stream(url: str, **fields: Any) -> Iterator[Stream]:
    """A streamed answer; leaving the context hangs up."""
    extra = {"stream": True, "stream_options": {"include_usage": True}, "return_speculation": True}
    with (
        httpx.Client(trust_env=False, timeout=TIMEOUT_S) as client,
        client.stream("POST", f"{url}/v1/chat/completions", json=chat(**fields) | extra) as response,
    ):
        assert response.status_code == 200, response.read()
        yield Stream(response)


def ask(url: str, **fields: Any) -> Reply:
    """A whole answer."""
    response = post(url, chat(**fields))
    assert response.status_code == 200, response.text
    body = response.json()
    (choice,) = body["choices"]
    reply = Reply(text=choice["message"]["content"], finish_reason=choice["finish_reason"], done=True)
    reply.take_usage(body["usage"])
    return reply


def repeat_until(enough: Callable[[Reply], object], answer: Callable[[], Reply]) -> Reply:
    """The first answer that is `enough`; the answers before it must have the same text."""
    first = reply = answer()
    for _ in range(MOST_ANSWERS):
        assert reply.text == first.text
        if enough(reply):
            return reply
        reply = answer()
    raise AssertionError(f"{MOST_ANSWERS} answers were not enough, the last one is {reply}")


def ask_until_accepted(url: str, **fields: Any) -> Reply:
    """The first whole answer with an accepted draft token."""
    return repeat_until(lambda reply: reply.n_accepted > 0, lambda: ask(url, **fields))


def post(url: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=TIMEOUT_S, trust_env=False)


def backs(url: str) -> list[dict[str, Any]]:
    """The lead's list of connected backs."""
    listed: list[dict[str, Any]] = httpx.get(f"{url}/v1/speculation", trust_env=False).json()["backs"]
    return listed
