"""`POST /v1/responses`: OpenAI's Responses API on the same core as the chat. Nothing is stored."""

import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from lead.chat.responses_events import ItemEvents
from lead.chat.responses_request import ResponsesRequest
from lead.http.chat_requests import End, Turn, as_chat, count_prompt
from lead.http.errors import error_body
from lead.http.sse import event_stream
from lead.server.services import Services, provide, provide_ready

router = APIRouter()


@router.post("/v1/responses")
@router.post("/responses", include_in_schema=False)
async def create_response(
    body: ResponsesRequest, request: Request, services: Annotated[Services, Depends(provide_ready)]
) -> Response:
    """Answer an input."""
    turn = await Turn.read(as_chat(body.to_chat()), services)
    frame = _frame(body, turn, services)
    if body.stream:
        return await event_stream(request, _events(turn, frame, services), done=False, error=_error_event)
    (answer,) = await turn.job.collect(request, services)
    told = ItemEvents()
    deltas, end = turn.read_whole(answer)
    for _ in told.push(deltas):
        pass
    return JSONResponse(_ended(frame, told, end)[0])


@router.post("/v1/responses/input_tokens")
@router.post("/responses/input_tokens", include_in_schema=False)
async def count_input_tokens(
    body: ResponsesRequest, services: Annotated[Services, Depends(provide)]
) -> dict[str, Any]:
    """How many tokens an input is to the model."""
    return {
        "object": "response.input_tokens",
        "input_tokens": await count_prompt(as_chat(body.to_chat()), services),
    }


async def _events(turn: Turn, frame: dict[str, Any], services: Services) -> AsyncIterator[dict[str, Any]]:
    """Numbered in order; the first one waits for the first words: until then an error is an HTTP status."""
    number = 0
    answer = _unnumbered(turn, frame, services)
    try:
        async for event in answer:
            yield {"sequence_number": number, **event}
            number += 1
    finally:
        await answer.aclose()


async def _unnumbered(
    turn: Turn, frame: dict[str, Any], services: Services
) -> AsyncGenerator[dict[str, Any]]:
    told, begun = ItemEvents(), False
    answer = turn.follow(services)
    try:
        async for item in answer:
            if not begun:
                yield {"type": "response.created", "response": frame}
                yield {"type": "response.in_progress", "response": frame}
                begun = True
            if not isinstance(item, End):
                for event in told.push(item):
                    yield event
                continue
            response, closing = _ended(frame, told, item)
            for event in closing:
                yield event
            yield {"type": f"response.{response['status']}", "response": response}
    finally:
        await answer.aclose()


def _frame(body: ResponsesRequest, turn: Turn, services: Services) -> dict[str, Any]:
    text_format = body.text.format if body.text else None
    return {
        "id": f"resp_{secrets.token_hex(12)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": {},
        "model": services.alias,
        "output": [],
        "parallel_tool_calls": not turn.config.one_call,
        "previous_response_id": None,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "store": False,
        "temperature": turn.job.sampling.temperature,
        "text": {"format": text_format or {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools or [],
        "top_p": turn.job.sampling.top_p,
        "truncation": "disabled",
        "usage": None,
    }


def _ended(frame: dict[str, Any], told: ItemEvents, end: End) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The whole response, and the events that end its last item."""
    status = "incomplete" if end.reason == "length" else "completed"
    closing = list(told.finish(status))
    details = {"reason": "max_output_tokens"} if status == "incomplete" else None
    figures = end.outcome.figures
    usage = {
        "input_tokens": figures.n_prompt,
        "input_tokens_details": {"cached_tokens": figures.n_cached, "cache_write_tokens": 0},
        "output_tokens": figures.n_generated,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": figures.n_prompt + figures.n_generated,
    }
    changes = {"status": status, "incomplete_details": details, "output": told.output, "usage": usage}
    return frame | changes, closing


def _error_event(error: Exception) -> dict[str, Any]:
    inner = error_body(error)["error"]
    return {
        "type": "error",
        "code": inner["code"] or inner["type"],
        "message": inner["message"],
        "param": None,
    }
