"""A client that sends mixed requests, retries where HTTP allows it, and records outcomes and their totals."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx
import jsonschema  # type: ignore[import-untyped]  # it has no stubs
from httpx_sse import aconnect_sse

from lab.campaign.requests import MixedRequest
from lab.measuring.answer import ReceivedAnswer
from shared.answer_stream import AnswerStream

_PATIENCE_SECONDS = 180.0
"""After this time an answer counts as never ended. Enough on a busy machine with all faults at once."""
_MAX_PAUSE_SECONDS = 1.0
"""The maximum pause before a retry, even if Retry-After asks for more: early retries meet more faults."""
_MESSAGE_CHARACTERS = 120
_RETRIED = {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}

Sleep = Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class Outcome:
    """The outcome of a request. Times are in seconds of the caller's clock."""

    request: MixedRequest
    began: float
    ended: float = 0.0
    answer: ReceivedAnswer = field(default_factory=ReceivedAnswer)
    left: bool = False
    """The client hung up, as planned."""
    errors: list[str] = field(default_factory=list)
    """HTTP statuses, types of error events, and names of failures of the connection, in order."""
    unterminated: bool = False
    """A response broke off, or never came to an end."""
    longest_pause: float = 0.0
    """Seconds between two events of the stream."""

    @property
    def lost(self) -> bool:
        """True if the client stayed to the end and did not get the whole answer."""
        return not (self.left or self.answer.done)


class _RefusedError(Exception):
    """The request may be sent again after `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


def unpooled(url: str) -> httpx.AsyncClient:
    """Return a client that opens a connection for each request: the server may close an idle connection."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(base_url=url, timeout=None, trust_env=False, limits=limits)  # noqa: S113 - callers have limits of their own


class Asker:
    """Sends requests to a server, with retries."""

    def __init__(self, http: httpx.AsyncClient, clock: Callable[[], float], sleep: Sleep) -> None:
        self._http = http
        self._clock = clock
        self._sleep = sleep

    async def ask(self, request: MixedRequest) -> Outcome:
        """Send a request until there is an answer or a final error, or until the time for retries is over."""
        outcome = Outcome(request, self._clock())
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while not await self._attempt(outcome):
                    pass
        except TimeoutError:
            outcome.errors.append("timeout")
            outcome.unterminated = True
        outcome.ended = self._clock()
        return outcome

    async def _attempt(self, outcome: Outcome) -> bool:
        """Try the request once; return whether this was the last attempt."""
        outcome.answer = ReceivedAnswer()
        try:
            await (self._stream(outcome) if outcome.request.streamed else self._whole(outcome))
        except _RefusedError as refused:
            await self._sleep(min(refused.seconds, _MAX_PAUSE_SECONDS))
            return False
        except httpx.ConnectError:
            outcome.errors.append("ConnectError")
            await self._sleep(_MAX_PAUSE_SECONDS)
            return False
        except httpx.TransportError as error:
            outcome.errors.append(type(error).__name__)
            outcome.unterminated = True
        return True

    async def _whole(self, outcome: Outcome) -> None:
        request = outcome.request
        response = await self._http.post(request.path, json=request.body)
        if self._is_success(response, outcome):
            outcome.answer.take(response.json())
            outcome.answer.done = True

    async def _stream(self, outcome: Outcome) -> None:
        request = outcome.request
        async with aconnect_sse(self._http, "POST", request.path, json=request.body) as source:
            if not source.response.is_success:
                await source.response.aread()
                self._is_success(source.response, outcome)
                return
            stream, n_with_text, last = AnswerStream(source), 0, self._clock()
            async for event in stream:
                now = self._clock()
                outcome.longest_pause, last = max(outcome.longest_pause, now - last), now
                outcome.answer.done = stream.done
                n_with_text += outcome.answer.take(event)
                if request.leaves_after and n_with_text >= request.leaves_after:
                    outcome.left = True
                    return
        if outcome.answer.error:
            outcome.errors.append(f"event {outcome.answer.error}")
        outcome.unterminated = not (outcome.answer.done or outcome.answer.error)

    def _is_success(self, response: httpx.Response, outcome: Outcome) -> bool:
        """Return False for a final error; raise _RefusedError for an error for which a retry may help."""
        if response.is_success:
            return True
        if response.status_code in _RETRIED:
            outcome.errors.append(str(response.status_code))
            raise _RefusedError(float(response.headers.get("retry-after", "1")))
        outcome.errors.append(f"{response.status_code} {response.text[:_MESSAGE_CHARACTERS]}")
        return False


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed request, and how it failed: the names of the fields that differ, `lost`, `unterminated`."""

    outcome: Outcome
    reasons: tuple[str, ...]


@dataclass(slots=True)
class Tally:
    """Compares outcomes with the answers of a run without faults, by index of the request.

    Without such an answer, only the numbers of answered and ended requests are counted.
    """

    expected: Mapping[int, ReceivedAnswer]
    exact: bool = False
    """True if log-probabilities must be the same, too."""
    n_requests: int = 0
    n_tokens: int = 0
    n_left: int = 0
    """Clients that hung up, as planned."""
    n_changed: int = 0
    n_lost: int = 0
    n_unterminated: int = 0
    longest_pause: float = 0.0
    """Seconds between two events of a stream."""
    longest_answer: float = 0.0
    """Seconds from the first attempt to the end of the answer."""
    errors: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count an outcome."""
        self.n_requests += 1
        self.n_tokens += outcome.answer.n_generated or 0
        self.n_left += outcome.left
        self.kinds[outcome.request.kind] += 1
        self.errors.update(outcome.errors)
        self.longest_pause = max(self.longest_pause, outcome.longest_pause)
        self.longest_answer = max(self.longest_answer, outcome.ended - outcome.began)
        changed = self._changes(outcome)
        self.n_changed += bool(changed)
        self.n_lost += outcome.lost
        self.n_unterminated += outcome.unterminated
        reasons = [*changed, *["lost"] * outcome.lost, *["unterminated"] * outcome.unterminated]
        if reasons:
            self.failures.append(Failure(outcome, tuple(reasons)))

    def _changes(self, outcome: Outcome) -> list[str]:
        answer, expected = outcome.answer, self.expected.get(outcome.request.index)
        if expected is None:
            return []
        if answer.done:
            return [*answer.differences(expected, exact=self.exact), *invalid_parts(answer, outcome.request)]
        return [] if answer.is_prefix_of(expected) else ["beginning"]


def invalid_parts(answer: ReceivedAnswer, request: MixedRequest) -> list[str]:
    """Return the parts of a finished answer that violate the request's JSON schema or tools."""
    found = []
    for choice in answer.choices.values():
        if request.schema is not None and choice.finish_reason == "stop":
            found += _violations(choice.text, request.schema)
        if choice.finish_reason == "tool_calls":
            for name, arguments in choice.tool_calls.values():
                found += _violations(arguments, _parameters(request, name))
    return found


def _parameters(request: MixedRequest, name: str) -> Mapping[str, Any] | bool:
    """Return the schema of a tool's arguments; without such a tool, a schema that allows no value."""
    tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in request.body["tools"]}
    schema: Mapping[str, Any] | bool = tools.get(name, False)
    return schema


def _violations(text: str, schema: Mapping[str, Any] | bool) -> list[str]:
    try:
        jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)
    except (ValueError, jsonschema.ValidationError):
        return ["schema"]
    return []
