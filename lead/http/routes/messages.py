"""`POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's API, on the same core as the chat."""

import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute

from lead.chat.anthropic_events import BlockEvents, blocks, stop_reason
from lead.chat.anthropic_request import CountRequest, MessagesRequest
from lead.http.chat_requests import End, Turn, as_chat, count_prompt
from lead.http.errors import error_body, error_response, first_invalid
from lead.http.sse import event_stream
from lead.server.services import Services, provide, provide_ready
from shared.errors import DuoError

_ERRORS = {400: "invalid_request_error", 404: "not_found_error", 503: "overloaded_error"}
_ADVICE = {"retry-after", "x-should-retry"}
"""Headers of an error that this API's clients read, too."""


class _AnthropicRoute(APIRoute):
    """Errors in Anthropic's shape."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_in_shape(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                return _refusal(first_invalid(error))
            except DuoError as error:
                return _refusal(error)

        return handle_in_shape


router = APIRouter(route_class=_AnthropicRoute)


@router.post("/v1/messages")
async def create_message(
    body: MessagesRequest, request: Request, services: Annotated[Services, Depends(provide_ready)]
) -> Response:
    """Continue a conversation."""
    turn = await Turn.read(as_chat(body.to_chat()), services)
    message = {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": services.alias,
    }
    if body.stream:
        return await event_stream(request, _events(turn, message, services), done=False, error=_error_event)
    (answer,) = await turn.job.collect(request, services)
    said, end = turn.said(answer)
    return JSONResponse({**message, "content": blocks(said), **_ending(end), "usage": _usage(end)})


@router.post("/v1/messages/count_tokens")
async def count_tokens(body: CountRequest, services: Annotated[Services, Depends(provide)]) -> dict[str, int]:
    """How many tokens a request's prompt has."""
    return {"input_tokens": await count_prompt(as_chat(body.to_chat()), services)}


async def _events(turn: Turn, message: dict[str, Any], services: Services) -> AsyncIterator[dict[str, Any]]:
    """The first one waits for the first words: until then an error is an HTTP status."""
    told, begun = BlockEvents(), False
    answer = turn.follow(services)
    try:
        async for item in answer:
            if not begun:
                usage = {"input_tokens": len(turn.job.prompts[0]), "output_tokens": 0}
                start = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
                yield {"type": "message_start", "message": start}
                yield {"type": "ping"}
                begun = True
            if not isinstance(item, End):
                for event in told.push(item):
                    yield event
                continue
            for event in told.finish():
                yield event
            yield {"type": "message_delta", "delta": _ending(item), "usage": _usage(item)}
            yield {"type": "message_stop"}
    finally:
        await answer.aclose()


def _ending(end: End) -> dict[str, Any]:
    stop = end.outcome.stop_string
    reason = "stop_sequence" if stop and end.reason == "stop" else stop_reason(end.reason)
    return {"stop_reason": reason, "stop_sequence": stop}


def _usage(end: End) -> dict[str, int]:
    figures = end.outcome.figures
    return {
        "input_tokens": figures.n_prompt - figures.n_cached,
        "cache_read_input_tokens": figures.n_cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": figures.n_generated,
    }


def _refusal(error: DuoError) -> JSONResponse:
    plain = error_response(error)
    body = _error_event(error)
    body["error"]["type"] = _ERRORS.get(plain.status_code, "api_error")
    headers = {name: value for name, value in plain.headers.items() if name in _ADVICE}
    return JSONResponse(body, plain.status_code, headers)


def _error_event(error: Exception) -> dict[str, Any]:
    return {"type": "error", "error": {"type": "api_error", "message": error_body(error)["error"]["message"]}}
