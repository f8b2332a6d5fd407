"""`POST /completion`: continue a text, or several, in llama-server's own form."""

import contextlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from lead.generation.assembler import TextToken
from lead.generation.completions import Outcome, Piece, Progress
from lead.http.answers import Job
from lead.http.prompts import Prompt, tokenize
from lead.http.render import stats as shapes
from lead.http.render.generation_settings import generation_settings
from lead.http.render.logprobs import token_probabilities
from lead.http.schema import GenerationFields
from lead.http.sse import event_stream, unless_gone
from lead.server.services import Services, provide_ready
from shared.errors import RequestError

router = APIRouter()

_STOP_TYPES = {"length": "limit", "stop": "eos"}


class PromptObject(BaseModel):
    """A prompt with what belongs to it; only text is understood."""

    model_config = ConfigDict(strict=True)

    prompt_string: str | list[int | str]
    multimodal_data: list[Any] | None = None


class NativeRequest(GenerationFields):
    """What a client posts.

    A prompt is text, token ids, or both in turn; a list of such asks for one answer each.
    """

    prompt: (
        str | PromptObject | Annotated[list[int | str | PromptObject | list[int | str]], Field(min_length=1)]
    )
    return_tokens: bool | None = None
    response_fields: Annotated[list[str], Field(max_length=64)] | None = None

    def prompts(self) -> list[Prompt]:
        """The prompts one by one; raises RequestError."""
        given = self.prompt
        if not isinstance(given, list):
            return [_plain(given)]
        if any(isinstance(part, int) for part in given):
            if not all(isinstance(part, int | str) for part in given):
                raise RequestError("prompt: token ids and lists do not mix", "prompt")
            return [given]  # type: ignore[list-item]  # checked above
        return [_plain(part) for part in given if not isinstance(part, int)]


@dataclass(slots=True)
class _Answer:
    """One prompt's answer as far as it has come."""

    texts: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)

    def add(self, piece: Piece) -> list[int]:
        """Take in a piece; returns its tokens."""
        tokens = [token.token for token in piece.tokens if token.token >= 0]
        self.texts.append(piece.text)
        self.pieces.append(piece)
        self.tokens += tokens
        return tokens


@router.post("/completion")
@router.post("/completions", include_in_schema=False)
async def create_native_completion(
    body: NativeRequest, request: Request, services: Annotated[Services, Depends(provide_ready)]
) -> Response:
    """Continue text; one object for one prompt, a list of them for several."""
    job = await Job.read(body, await tokenize(body.prompts(), services), services)
    conversion = _Conversion(body, job, services)
    if body.stream:
        return await event_stream(request, conversion.events(), done=False)
    results = await unless_gone(request, conversion.collect())
    return JSONResponse(results[0] if len(results) == 1 else results)


class _Conversion:
    """From what comes of a job to llama-server's objects."""

    def __init__(self, body: NativeRequest, job: Job, services: Services) -> None:
        self._body = body
        self._job = job
        self._services = services
        self._answers: dict[int, _Answer] = {}

    async def events(self) -> AsyncGenerator[dict[str, Any]]:
        """One object per piece of text, then one that ends the answer."""
        async with contextlib.aclosing(self._job.run(self._services)) as items:
            async for index, item in items:
                answer = self._answers.setdefault(index, _Answer())
                if isinstance(item, Outcome):
                    yield self._last(index, item, streamed=True)
                elif item.progress is not None:
                    yield self._progress(index, item.progress)
                else:
                    for piece in self._apart(item):
                        tokens = answer.add(piece)
                        if tokens or piece.text:  # the last text may be the rest of a character
                            yield self._partial(index, piece, tokens)

    async def collect(self) -> list[dict[str, Any]]:
        """The answers whole, in the order of their prompts."""
        results = {}
        async with contextlib.aclosing(self._job.run(self._services)) as items:
            async for index, item in items:
                answer = self._answers.setdefault(index, _Answer())
                if isinstance(item, Outcome):
                    results[index] = self._last(index, item, streamed=False)
                else:
                    answer.add(item)
        return [results[index] for index in sorted(results)]

    def _apart(self, piece: Piece) -> list[Piece]:
        """With probabilities llama-server tells one token at a time, and clients count on it."""
        if self._job.options.n_probs is None:
            return [piece]
        return [replace(piece, tokens=[token]) for token in piece.tokens]

    def _progress(self, index: int, progress: Progress) -> dict[str, Any]:
        return {
            "index": index,
            "content": "",
            "tokens": [],
            "stop": False,
            "tokens_predicted": 0,
            "tokens_evaluated": len(self._job.prompts[index]),
            "prompt_progress": shapes.prompt_progress(progress),
        } | ({"timings": shapes.timings_of_prompt(progress)} if self._job.tells_timings else {})

    def _partial(self, index: int, piece: Piece, tokens: list[int]) -> dict[str, Any]:
        partial = {
            "index": index,
            "content": piece.text,
            "tokens": tokens,
            "stop": False,
            "tokens_predicted": len(self._answers[index].tokens),
            "tokens_evaluated": len(self._job.prompts[index]),
        }
        if piece.so_far is not None:
            partial["timings"] = shapes.timings(piece.so_far)
        return partial | self._probabilities(piece.tokens)

    def _probabilities(self, tokens: Sequence[TextToken]) -> dict[str, Any]:
        options = self._job.options
        if options.n_probs is None or not tokens:
            return {}
        told = token_probabilities(tokens, self._services.vocabulary, filtered=options.filtered)
        return {"completion_probabilities": told}

    def _last(self, index: int, outcome: Outcome, *, streamed: bool) -> dict[str, Any]:
        services, answer = self._services, self._answers[index]
        text = "".join(answer.texts)
        n_tokens = outcome.figures.n_prompt + outcome.figures.n_generated
        whole = {
            "index": index,
            "content": "" if streamed else text,
            "tokens": answer.tokens if self._body.return_tokens and not streamed else [],
            "id_slot": outcome.slot,
            "stop": True,
            "model": services.alias,
            "tokens_predicted": outcome.figures.n_generated,
            "tokens_evaluated": outcome.figures.n_prompt,
            "generation_settings": generation_settings(self._job, stream=streamed),
            "prompt": services.vocabulary.detokenize(self._job.prompts[index]),
            "has_new_line": "\n" in text,
            "truncated": outcome.reason == "length" and n_tokens >= services.completions.n_ctx,
            "stop_type": "word" if outcome.stop_string is not None else _STOP_TYPES[outcome.reason],
            "stopping_word": outcome.stop_string or "",
            "tokens_cached": n_tokens - 1,  # the last one is never decoded
            "timings": shapes.timings(outcome.figures),
        }
        if not streamed:
            whole |= self._probabilities([token for piece in answer.pieces for token in piece.tokens])
        fields = self._body.response_fields
        return _select(whole, fields) if fields else whole


def _plain(prompt: PromptObject | Prompt) -> Prompt:
    if not isinstance(prompt, PromptObject):
        return prompt
    if prompt.multimodal_data is not None:
        raise RequestError("prompt: only text is understood, no multimodal_data", "prompt")
    return prompt.prompt_string


def _select(whole: dict[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """The fields at `paths` (`generation_settings/n_predict`) by those names; unknown ones are left out."""
    selected = {}
    for path in paths:
        value: Any = whole
        for key in path.split("/"):
            value = value.get(key, _MISSING) if isinstance(value, dict) else _MISSING
        if value is not _MISSING:
            selected[path] = value
    return selected


_MISSING = object()
