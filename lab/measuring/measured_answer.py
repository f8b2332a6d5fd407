"""Asks an OpenAI-compatible server for a streamed answer, and times it."""

import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from httpx_sse import SSEError, connect_sse

from lab.measuring.answer import ReceivedAnswer
from lab.measuring.questions import ChatQuestion
from shared.answer_stream import AnswerStream
from shared.errors import ConfigError

_TIMEOUT_S = 600.0
_NO_FILTERS = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


@dataclass(frozen=True, slots=True)
class Sampling:
    """The request fields that all requests of a configuration share.

    default_filters: use the server's default filters; otherwise no filter truncates the distribution. fields:
    additional fields.
    """

    temperature: float
    n_tokens: int
    default_filters: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)

    def request(self, question: ChatQuestion) -> dict[str, Any]:
        """Return the body of a streaming chat request."""
        return {
            "messages": question.messages,
            "max_tokens": self.n_tokens,
            "temperature": self.temperature,
            "seed": question.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({} if self.default_filters else _NO_FILTERS),
            **self.fields,
        }


@dataclass(frozen=True, slots=True)
class MeasuredAnswer:
    """A measured answer. seconds: from its first `n_first` tokens to its last, without the prompt."""

    text: str
    n_tokens: int
    seconds: float
    n_drafted: int = 0
    n_accepted: int = 0
    wait_seconds: float | None = None
    """The seconds that the lead waited for drafts; None if it does not report them."""
    n_counted: int | None = None
    """Forward passes as counted by the server, including the prompt's; None if it does not report them."""
    n_first: int = 1
    """Tokens of the first step, whose time is the prompt's."""
    first_seconds: float | None = None
    """Seconds from the request to the first text, by the client's clock."""

    @property
    def n_timed(self) -> int:
        """The number of tokens that were generated within `seconds`."""
        return max(0, self.n_tokens - self.n_first)

    @property
    def n_steps(self) -> int:
        """The number of forward passes after the prompt's.

        If the server does not count them, they are estimated: each yields its accepted tokens and one more. A
        last pass that the token limit cut short is then not counted.
        """
        if self.n_counted is not None:
            return max(0, self.n_counted - 1)
        return max(0, self.n_tokens - 1 - self.n_accepted)


def client(url: str, key: str | None = None, tls: ssl.SSLContext | None = None) -> httpx.Client:
    """Return an HTTP client without proxies of the environment. tls None: the system's CA certificates."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(
        base_url=url, timeout=_TIMEOUT_S, trust_env=False, headers=headers, verify=tls or True
    )


def ask(http: httpx.Client, question: ChatQuestion, sampling: Sampling) -> MeasuredAnswer:
    """Send the request and measure the answer. Raises ConfigError with the server's message if it refuses."""
    answer = ReceivedAnswer(asked_at=time.perf_counter())
    try:
        with connect_sse(http, "POST", "/v1/chat/completions", json=sampling.request(question)) as source:
            if not source.response.is_success:
                said = source.response.read().decode(errors="replace")
                raise ConfigError(f"{http.base_url} answered {source.response.status_code}: {said[:300]}")
            for event in AnswerStream(source):
                answer.take(event, time.perf_counter())
                if error := event.get("error"):
                    raise ConfigError(f"the server ended an answer with an error: {error}")
    except (httpx.TransportError, SSEError, ValueError) as error:  # ValueError: not JSON
        raise ConfigError(f"{http.base_url} does not answer: {error or type(error).__name__}") from error
    return measured(answer)


def measured(answer: ReceivedAnswer) -> MeasuredAnswer:
    """Return a measurement from the server's own times if it reports them, else from arrival times.

    Raises ConfigError.
    """
    timings, arrivals = answer.timings, answer.arrivals
    first = arrivals[0] - answer.asked_at if arrivals else None
    if not timings:
        if answer.text and not answer.n_generated:
            raise ConfigError("the server does not report the number of tokens of its answers (usage)")
        seconds = arrivals[-1] - arrivals[0] if arrivals else 0.0
        return MeasuredAnswer(answer.text, answer.n_generated or 0, seconds, first_seconds=first)
    return MeasuredAnswer(
        text=answer.text,
        n_tokens=timings["predicted_n"],
        seconds=timings["predicted_ms"] / 1000,
        n_drafted=timings.get("draft_n", 0),
        n_accepted=timings.get("draft_n_accepted", 0),
        n_first=timings["predicted_n"] - n_timed(timings),
        first_seconds=first,
    )


def n_timed(timings: Mapping[str, Any]) -> int:
    """Return the number of tokens that were generated within `predicted_ms`: those after the first step.

    The lead's rate counts the same tokens. llama-server's rate also counts the first token, the only token of
    its first step.
    """
    n_rated: int = round(timings["predicted_per_second"] * timings["predicted_ms"] / 1000)
    return max(0, min(n_rated, int(timings["predicted_n"]) - 1))
