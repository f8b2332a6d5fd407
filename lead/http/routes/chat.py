"""The route `/v1/chat/completions`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from lead.http.generation_request import ChatRequest, count_prompt, read_chat_request
from lead.http.json_route import JsonRoute
from lead.http.render.openai import ChatRenderer
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
    """Count the tokens of a conversation's prompt."""
    return {"input_tokens": await count_prompt(body, http_request, services)}
