"""The chat in three APIs: `/v1/chat/completions`, OpenAI's `/v1/responses` and Anthropic's `/v1/messages`.

Requests of the latter two are converted to chat requests. Nothing is stored.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from lead.chat.anthropic_request import MessagesRequest
from lead.chat.responses_request import ResponsesRequest
from lead.http.generation_request import ChatRequest, as_chat, count_prompt, read_chat_request
from lead.http.json_route import JsonRoute, convert
from lead.http.render.anthropic import AnthropicRenderer
from lead.http.render.openai import ChatRenderer
from lead.http.render.responses import ResponsesRenderer
from lead.http.services import Services, get_ready_services, get_services
from lead.http.sse import respond

router = APIRouter(route_class=JsonRoute)


@router.post("/v1/chat/completions")
@router.post("/chat/completions", include_in_schema=False)
async def create_chat_completion(
    body: ChatRequest, http_request: Request, services: Annotated[Services, Depends(get_ready_services)]
) -> Response:
    """Continue a conversation."""
    request = await read_chat_request(body, http_request, services)
    renderer = ChatRenderer(body, request, services)
    return await respond(http_request, request, services, renderer)


@router.post("/v1/chat/completions/input_tokens")
@router.post("/chat/completions/input_tokens", include_in_schema=False)
async def count_chat_tokens(
    body: ChatRequest, http_request: Request, services: Annotated[Services, Depends(get_services)]
) -> dict[str, int]:
    """How many tokens a conversation's prompt has."""
    return {"input_tokens": await count_prompt(body, http_request, services)}


@router.post("/v1/responses")
@router.post("/responses", include_in_schema=False)
async def create_response(
    body: ResponsesRequest, http_request: Request, services: Annotated[Services, Depends(get_ready_services)]
) -> Response:
    """Answer an input."""
    chat = await convert(http_request, lambda: as_chat(body.to_chat()))
    request = await read_chat_request(chat, http_request, services)
    renderer = ResponsesRenderer(body, request, services)
    return await respond(http_request, request, services, renderer)


@router.post("/v1/responses/input_tokens")
@router.post("/responses/input_tokens", include_in_schema=False)
async def count_response_tokens(
    body: ResponsesRequest, http_request: Request, services: Annotated[Services, Depends(get_services)]
) -> dict[str, Any]:
    """Count the tokens of an input."""
    chat = await convert(http_request, lambda: as_chat(body.to_chat()))
    n_tokens = await count_prompt(chat, http_request, services)
    return {"object": "response.input_tokens", "input_tokens": n_tokens}


@router.post("/v1/messages")
async def create_message(
    body: MessagesRequest, http_request: Request, services: Annotated[Services, Depends(get_ready_services)]
) -> Response:
    """Continue a conversation."""
    chat = await convert(http_request, lambda: _as_chat(body, services))
    request = await read_chat_request(chat, http_request, services)
    renderer = AnthropicRenderer(request, services)
    return await respond(http_request, request, services, renderer)


@router.post("/v1/messages/count_tokens")
async def count_message_tokens(
    body: MessagesRequest, http_request: Request, services: Annotated[Services, Depends(get_services)]
) -> dict[str, int]:
    """How many tokens a request's prompt has."""
    chat = await convert(http_request, lambda: _as_chat(body, services))
    return {"input_tokens": await count_prompt(chat, http_request, services)}


def _as_chat(body: MessagesRequest, services: Services) -> ChatRequest:
    return as_chat(body.to_chat(keep_billing_header=services.settings.conversation.keep_billing_header))
