"""Requests to a real lead over HTTP: whole answers, and streams that can be watched."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
from httpx_sse import EventSource

from shared.answer_stream import AnswerStream

CHAT = "/v1/chat/completions"
PROMPT = "Tell me a story about a fox named Zorvi who gets lost, with a red umbrella."
N_TOKENS = 80
ENDLESS = 2000
"""More tokens than any test waits for, and fewer than the context has."""
TIMEOUT_S = 240.0
"""The seconds that a lead may be silent on a busy machine. pytest's own limit is longer."""
MAX_ANSWERS, MIN_PATIENCE_S = 60, 150.0
"""The number of answers and the time in which a back on a busy machine has to get a draft token accepted.

It gets the longer of the two. Usually one answer is enough.
"""


def chat(prompt: str = PROMPT, **fields: Any) -> dict[str, Any]:
    """A chat request that runs for all of its tokens, even if the model would end it."""
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
    """The data that a client has received. `sources`: of the drafted tokens."""

    text: str = ""
    sources: set[str] = field(default_factory=set)
    n_accepted: int = 0
    n_drafted: int = 0
    n_suffix_accepted: int = 0
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
            self.n_suffix_accepted = details.get("suffix_accepted_tokens", 0)
            self.n_prompt = usage["prompt_tokens"]
            self.n_cached = usage["prompt_tokens_details"]["cached_tokens"]
            self.n_generated = usage["completion_tokens"]


class Stream:
    """One streamed answer. `reply` is the part that has arrived."""

    def __init__(self, response: httpx.Response) -> None:
        self.reply = Reply()
        self._stream = AnswerStream(EventSource(response))
        self._events = iter(self._stream)

    def until(self, enough: Callable[[Reply], object]) -> Self:
        """Read on until `enough` is true, or to the end."""
        while not enough(self.reply) and (event := next(self._events, None)) is not None:
            self.reply.take(event)
            self.reply.done = self._stream.done
        return self

    def rest(self) -> Reply:
        """Read to the end."""
        return self.until(lambda _: False).reply


def connect(url: str, key: str | None = None) -> httpx.Client:
    """A client of the lead at `url` that is patient and uses no proxy."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, trust_env=False)


def get(url: str, path: str, *, key: str | None = None) -> Any:
    """The JSON at a path of the lead, which has to exist."""
    with connect(url, key) as client:
        response = client.get(path)
    assert response.status_code == 200, response.text
    return response.json()


def post(url: str, body: dict[str, Any], *, key: str | None = None) -> httpx.Response:
    """The response to a chat request."""
    with connect(url, key) as client:
        return client.post(CHAT, json=body)


@contextmanager
def stream(url: str, *, key: str | None = None, **fields: Any) -> Iterator[Stream]:
    """A streamed answer. Leaving the context closes the connection."""
    extra = {"stream": True, "stream_options": {"include_usage": True}, "return_speculation": True}
    with connect(url, key) as client, client.stream("POST", CHAT, json=chat(**fields) | extra) as response:
        assert response.status_code == 200, response.read()
        yield Stream(response)


def ask(url: str, *, key: str | None = None, **fields: Any) -> Reply:
    """A whole answer."""
    response = post(url, chat(**fields), key=key)
    reply = Reply(text=text_of(response), done=True)
    body = response.json()
    reply.finish_reason = body["choices"][0]["finish_reason"]
    reply.take_usage(body["usage"])
    return reply


def text_of(response: httpx.Response) -> str:
    """The text of a whole answer with one choice."""
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    text: str = choice["message"]["content"]
    return text


def repeat_until(enough: Callable[[Reply], object], answer: Callable[[], Reply]) -> Reply:
    """The first answer that is `enough`. The answers before it must have the same text."""
    first = reply = answer()
    n_answers, until = 0, time.monotonic() + MIN_PATIENCE_S
    while n_answers < MAX_ANSWERS or time.monotonic() < until:
        assert reply.text == first.text
        if enough(reply):
            return reply
        reply, n_answers = answer(), n_answers + 1
    raise AssertionError(f"{n_answers} answers were not enough, the last one is {reply}")


def ask_until_accepted(url: str, *, key: str | None = None, **fields: Any) -> Reply:
    """The first whole answer with an accepted draft token."""
    return repeat_until(lambda reply: reply.n_accepted > 0, lambda: ask(url, key=key, **fields))


def backs(url: str, *, key: str | None = None) -> list[dict[str, Any]]:
    """The lead's list of connected backs."""
    listed: list[dict[str, Any]] = get(url, "/v1/speculation", key=key)["backs"]
    return listed


def planner(url: str) -> dict[str, Any]:
    """The lead's report on its speculation."""
    report: dict[str, Any] = get(url, "/v1/speculation")["planner"]
    return report
