"""`POST /v1/completions`: continue one text, or several."""

import secrets
import time
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from lead.generation.assembler import TextToken
from lead.generation.completions import Outcome
from lead.http.answers import Answer, Job
from lead.http.prompts import tokenize
from lead.http.render import stats as shapes
from lead.http.render.logprobs import TextLogprobs
from lead.http.render.openai import chunks
from lead.http.schema import GenerationFields
from lead.http.sse import event_stream
from lead.server.services import Services, provide_ready
from shared.errors import RequestError

router = APIRouter()

TokenIds = list[int]


class CompletionRequest(GenerationFields):
    """What a client posts. A prompt is text or token ids; a list of them asks for one answer each."""

    prompt: str | TokenIds | list[str | TokenIds]
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None

    def check(self) -> None:
        """Raise RequestError for what is well-formed but not served."""
        super().check()
        if self.suffix:
            raise RequestError("suffix: the model continues a text, it does not fill a gap", "suffix")
        if self.echo and (self.stream or self.logprobs is not None):
            raise RequestError("echo: neither with stream nor with logprobs", "echo")
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise RequestError("best_of: answers are not ranked; ask for n of them", "best_of")

    def prompts(self) -> list[str | TokenIds]:
        """The prompts one by one; an empty list is one empty prompt."""
        if isinstance(self.prompt, str) or not self.prompt:
            return [self.prompt or ""]  # type: ignore[list-item]  # mypy keeps the list type for the empty list
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)


@router.post("/v1/completions")
async def create_completion(
    body: CompletionRequest, request: Request, services: Annotated[Services, Depends(provide_ready)]
) -> Response:
    """Continue text."""
    job = await Job.read(body, await tokenize(body.prompts(), services), services)
    frame = {
        "id": f"cmpl-{secrets.token_hex(12)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": services.alias,
        "system_fingerprint": shapes.FINGERPRINT,
    }
    if body.stream:
        return await event_stream(request, chunks(job.run(services), frame, body, lambda: _Text(services)))
    return JSONResponse({**frame, **_whole(job, await job.collect(request, services), body, services)})


class _Text:
    """Tells an answer as it is."""

    def __init__(self, services: Services) -> None:
        self._logprobs = TextLogprobs(services.vocabulary)

    def begin(self) -> list[dict[str, Any]]:
        return []

    def push(self, text: str) -> list[dict[str, Any]]:
        return [{"text": text}] if text else []

    def finish(self, outcome: Outcome) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
        return [], {"text": ""}, outcome.reason

    def logprobs(self, tokens: Sequence[TextToken]) -> dict[str, Any] | None:
        return self._logprobs.add(tokens)


def _whole(job: Job, answers: list[Answer], body: CompletionRequest, services: Services) -> dict[str, Any]:
    outcomes = [answer.outcome for answer in answers if answer.outcome]
    choices = [
        {
            "index": index,
            "text": _echoed(job, index, body, services) + answer.text,
            "logprobs": TextLogprobs(services.vocabulary).add(answer.tokens),
            "finish_reason": outcome.reason,
        }
        for index, (answer, outcome) in enumerate(zip(answers, outcomes, strict=True))
    ]
    whole: dict[str, Any] = {
        "choices": choices,
        "usage": shapes.usage(outcomes, job.n),
        "timings": shapes.timings(outcomes[0].figures),
        "seed": outcomes[0].seed,
    }
    if body.return_speculation:
        whole["speculation"] = shapes.speculation([piece for answer in answers for piece in answer.pieces])
    return whole


def _echoed(job: Job, index: int, body: CompletionRequest, services: Services) -> str:
    return services.vocabulary.detokenize(job.prompts[index]) if body.echo else ""
