"""Load from concurrent clients: each streams one answer after the other and records when text arrives."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx
from httpx_sse import aconnect_sse

from lead.benchmark.measured_answer import Sampling, StreamedAnswer
from lead.benchmark.questions import ChatQuestion
from shared.answer_stream import AnswerStream
from shared.errors import ConfigError

_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Load:
    """What concurrent clients measured of one server. Latencies in milliseconds."""

    server: str
    n_clients: int
    n_answers: int
    tokens_per_second: float
    """All clients together, from the first request to the end of the last answer."""
    read_per_second: float
    """Tokens of prompts, from the first request to the first text of the last answer that has any."""
    first_ms_p50: float
    first_ms_p95: float
    first_ms_max: float
    between_ms_p50: float
    between_ms_p95: float


def digest(server: str, n_clients: int, answers: Sequence[StreamedAnswer], seconds: float) -> Load:
    """The figures of a run of `seconds`."""
    firsts = [1000 * first for answer in answers if (first := answer.to_first) is not None]
    gaps = [1000 * gap for answer in answers for gap in answer.gaps]
    return Load(
        server=server,
        n_clients=n_clients,
        n_answers=len(answers),
        tokens_per_second=sum(answer.n_tokens for answer in answers) / seconds if seconds > 0 else 0.0,
        read_per_second=_read_per_second(answers),
        first_ms_p50=percentile(firsts, 0.5),
        first_ms_p95=percentile(firsts, 0.95),
        first_ms_max=max(firsts, default=0.0),
        between_ms_p50=percentile(gaps, 0.5),
        between_ms_p95=percentile(gaps, 0.95),
    )


def _read_per_second(answers: Sequence[StreamedAnswer]) -> float:
    firsts = [answer.arrivals[0] for answer in answers if answer.arrivals]
    seconds = max(firsts) - min(answer.asked_at for answer in answers) if firsts else 0.0
    return sum(answer.n_read for answer in answers) / seconds if seconds > 0 else 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of them do not exceed (nearest rank); 0 without values."""
    if not values:
        return 0.0
    rank = max(1, -int(-share * len(values) // 1))
    return sorted(values)[rank - 1]


async def put_on(
    url: str,
    server: str,
    prompts: Sequence[Sequence[ChatQuestion]],
    sampling: Sampling,
    clock: Callable[[], float] = time.perf_counter,
) -> Load:
    """One client for each list of prompts, all at once. Raises ConfigError if a request is refused."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    answers: list[StreamedAnswer] = []
    async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S, trust_env=False, limits=limits) as http:
        begun = clock()
        try:
            async with asyncio.TaskGroup() as group:
                for own in prompts:
                    group.create_task(_ask_in_turn(http, own, sampling, answers, clock))
        except* ConfigError as errors:
            raise ConfigError(str(errors.exceptions[0])) from errors
        seconds = clock() - begun
    return digest(server, len(prompts), answers, seconds)


async def _ask_in_turn(
    http: httpx.AsyncClient,
    prompts: Sequence[ChatQuestion],
    sampling: Sampling,
    answers: list[StreamedAnswer],
    clock: Callable[[], float],
) -> None:
    for prompt in prompts:
        # Answers of one length: what is measured is the server, not where a model ends its stories.
        request = sampling.request(prompt) | {"ignore_eos": True}
        answer = StreamedAnswer(clock())
        answers.append(answer)
        async with aconnect_sse(http, "POST", "/v1/chat/completions", json=request) as source:
            if not source.response.is_success:
                await source.response.aread()
                raise ConfigError(f"{http.base_url} refused a request: {source.response.text[:300]}")
            async for event in AnswerStream(source):
                answer.take(event, clock())
