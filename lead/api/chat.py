"""`POST /v1/chat/completions`."""

import asyncio
import secrets
import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from lead.api import shapes
from lead.api.answers import Answer, Job
from lead.api.chunks import chunks
from lead.api.fields import GenerationFields
from lead.api.sse import event_stream
from lead.chat.request import ConversationFields
from lead.services import Services, provide_ready

router = APIRouter()


class ChatRequest(GenerationFields, ConversationFields):
    """What a client posts."""


@router.post("/v1/chat/completions")
@router.post("/chat/completions", include_in_schema=False)
async def create_chat_completion(
    body: ChatRequest, request: Request, services: Annotated[Services, Depends(provide_ready)]
) -> Response:
    """Continue a conversation."""
    prompt = await asyncio.to_thread(_tokenize, body, services)
    job = await Job.read(body, [prompt], services)
    frame = {
        "id": f"chatcmpl-{secrets.token_hex(12)}",
        "created": int(time.time()),
        "model": services.alias,
        "system_fingerprint": shapes.FINGERPRINT,
    }
    if body.stream:
        frame["object"] = "chat.completion.chunk"
        return await event_stream(request, chunks(job.run(services), frame, body, _delta, with_role=True))
    (answer,) = await job.collect(request, services)
    return JSONResponse({**frame, "object": "chat.completion", **_whole(answer, body)})


def render_prompt(body: ConversationFields, services: Services) -> str:
    """The text that the model is to continue; raises RequestError. It may take long: call it in a thread."""
    return services.template.render(body.conversation(services.chat))


def _tokenize(body: ChatRequest, services: Services) -> list[int]:
    text = render_prompt(body, services)
    vocabulary = services.vocabulary
    if vocabulary.adds_bos and vocabulary.bos is not None:
        # The template may have written the BOS token that the tokenizer is about to add.
        text = text.removeprefix(vocabulary.piece(vocabulary.bos, special=True).decode("utf-8", "replace"))
    return vocabulary.tokenize(text, add_special=True, parse_special=True)


def _delta(text: str | None) -> dict[str, Any]:
    return {"delta": {} if text is None else {"content": text}}


def _whole(answer: Answer, body: ChatRequest) -> dict[str, Any]:
    assert answer.outcome
    message = {"role": "assistant", "content": answer.text}
    whole: dict[str, Any] = {
        "choices": [
            {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.outcome.reason}
        ],
        "usage": shapes.usage([answer.outcome]),
        "timings": shapes.timings(answer.outcome),
        "seed": answer.outcome.seed,
    }
    if body.return_speculation:
        whole["speculation"] = shapes.speculation(answer.pieces)
    return whole
