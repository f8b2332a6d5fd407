"""`POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's API, on the same core as the chat."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from lead.chat.anthropic_request import FIELD_NAMES, CountRequest, MessagesRequest
from lead.http.answers import respond
from lead.http.chat_request import ChatRequest, ConvertedRoute, as_chat, count_prompt, read_chat_request
from lead.http.json_route import convert
from lead.http.render.anthropic import AnthropicRenderer
from lead.server.services import Services, get_ready_services, get_services


class _MessagesRoute(ConvertedRoute):
    field_names = FIELD_NAMES


router = APIRouter(route_class=_MessagesRoute)


@router.post("/v1/messages")
async def create_message(
    body: MessagesRequest, http_request: Request, services: Annotated[Services, Depends(get_ready_services)]
) -> Response:
    """Continue a conversation."""
    chat = await convert(http_request, lambda: _as_chat(body, services))
    request = await read_chat_request(chat, http_request, services)
    renderer = AnthropicRenderer(request, services)
    return await respond(http_request, request, services, renderer, streamed=body.stream)


@router.post("/v1/messages/count_tokens")
async def count_tokens(
    body: CountRequest, http_request: Request, services: Annotated[Services, Depends(get_services)]
) -> dict[str, int]:
    """How many tokens a request's prompt has."""
    chat = await convert(http_request, lambda: _as_chat(body, services))
    return {"input_tokens": await count_prompt(chat, http_request, services)}


def _as_chat(body: CountRequest, services: Services) -> ChatRequest:
    return as_chat(body.to_chat(keep_billing_header=services.chat.keep_billing_header))
