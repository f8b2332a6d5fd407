"""The route `/v1/messages`. A request is converted to a chat request; nothing is stored."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from lead.apis.anthropic.anthropic_render import AnthropicRenderer
from lead.apis.anthropic.anthropic_request import MessagesRequest
from lead.http.generation_request import ChatRequest, as_chat, count_prompt, read_chat_request
from lead.http.json_route import JsonRoute, convert
from lead.http.services import Services, get_ready_services, get_services
from lead.http.sse import respond

router = APIRouter(route_class=JsonRoute)


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
    """Count the tokens of a request's prompt."""
    chat = await convert(http_request, lambda: _as_chat(body, services))
    return {"input_tokens": await count_prompt(chat, http_request, services)}


def _as_chat(body: MessagesRequest, services: Services) -> ChatRequest:
    return as_chat(body.to_chat(keep_billing_header=services.settings.conversation.keep_billing_header))
