"""`POST /v1/chat/completions`."""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from lead.chat.deltas import AssistantMessage, Content, Delta, Reasoning, ToolCallArguments, ToolCallStart
from lead.chat.parser import OutputParser
from lead.generation.assembler import TextToken
from lead.generation.completions import Outcome
from lead.http.answers import Answer
from lead.http.chat_requests import ChatRequest, Turn, count_prompt, finish_reason
from lead.http.render import stats as shapes
from lead.http.render.generation_settings import generation_settings
from lead.http.render.logprobs import chat_logprobs
from lead.http.render.openai import chunks
from lead.http.sse import event_stream
from lead.server.services import Services, provide, provide_ready

router = APIRouter()


@router.post("/v1/chat/completions")
@router.post("/chat/completions", include_in_schema=False)
async def create_chat_completion(
    body: ChatRequest, request: Request, services: Annotated[Services, Depends(provide_ready)]
) -> Response:
    """Continue a conversation."""
    turn = await Turn.read(body, services)
    frame = {
        "id": f"chatcmpl-{secrets.token_hex(12)}",
        "created": int(time.time()),
        "model": services.alias,
        "system_fingerprint": shapes.FINGERPRINT,
    }
    if body.stream:
        frame["object"] = "chat.completion.chunk"
        events = chunks(turn.job.run(services), frame, body, lambda: _ChatTeller(turn.reader, services))
        return await event_stream(request, events)
    answers = await turn.job.collect(request, services)
    return JSONResponse({**frame, "object": "chat.completion", **_whole(turn, answers, body, services)})


@router.post("/v1/chat/completions/input_tokens")
@router.post("/chat/completions/input_tokens", include_in_schema=False)
async def count_input_tokens(
    body: ChatRequest, services: Annotated[Services, Depends(provide)]
) -> dict[str, int]:
    """How many tokens a conversation's prompt has."""
    return {"input_tokens": await count_prompt(body, services)}


class _ChatTeller:
    """Tells an answer as OpenAI's deltas."""

    def __init__(self, reader: Callable[[], OutputParser], services: Services) -> None:
        self._reader = reader()
        self._vocabulary = services.vocabulary

    def begin(self) -> list[dict[str, Any]]:
        return [{"delta": {"role": "assistant", "content": None}}]

    def push(self, text: str) -> list[dict[str, Any]]:
        return [{"delta": _delta(delta)} for delta in self._reader.push(text)]

    def finish(self, outcome: Outcome) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
        held = [{"delta": _delta(delta)} for delta in self._reader.finish()]
        return held, {"delta": {}}, finish_reason(self._reader, outcome)

    def logprobs(self, tokens: Sequence[TextToken]) -> dict[str, Any] | None:
        return chat_logprobs(tokens, self._vocabulary)


def _delta(delta: Delta) -> dict[str, Any]:
    match delta:
        case Content(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text}
        case ToolCallStart(index, call_id, name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        case ToolCallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def _message(said: AssistantMessage) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.content}
    if said.reasoning:
        message["reasoning_content"] = said.reasoning
    if said.calls:
        message["content"] = said.content or None
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in said.calls
        ]
    return message


def _whole(turn: Turn, answers: list[Answer], body: ChatRequest, services: Services) -> dict[str, Any]:
    outcomes = [answer.outcome for answer in answers if answer.outcome]
    choices = []
    for index, answer in enumerate(answers):
        said, end = turn.said(answer)
        choices.append(
            {
                "index": index,
                "message": _message(said),
                "logprobs": chat_logprobs(answer.tokens, services.vocabulary),
                "finish_reason": end.reason,
            }
        )
    whole: dict[str, Any] = {
        "choices": choices,
        "usage": shapes.usage(outcomes, turn.job.n),
        "timings": shapes.timings(outcomes[0].figures),
        "seed": outcomes[0].seed,
    }
    if body.return_speculation:
        whole["speculation"] = shapes.speculation([piece for answer in answers for piece in answer.pieces])
    if services.chat.verbose if body.verbose is None else body.verbose:
        whole["__verbose"] = {
            "prompt": services.vocabulary.detokenize(turn.job.prompts[0]),
            "generation_settings": generation_settings(turn.job, stream=False),
        }
    return whole
