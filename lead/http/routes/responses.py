"""`POST /v1/responses`: OpenAI's Responses API on the same core as the chat. Nothing is stored."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from lead.chat.responses_request import FIELD_NAMES, ResponsesRequest
from lead.http.answers import respond
from lead.http.chat_request import ConvertedRoute, as_chat, count_prompt, read_chat_request
from lead.http.json_route import convert
from lead.http.render.responses import ResponsesRenderer
from lead.server.services import Services, get_ready_services, get_services


class _ResponsesRoute(ConvertedRoute):
    field_names = FIELD_NAMES


router = APIRouter(route_class=_ResponsesRoute)


@router.post("/v1/responses")
@router.post("/responses", include_in_schema=False)
async def create_response(
    body: ResponsesRequest, http_request: Request, services: Annotated[Services, Depends(get_ready_services)]
) -> Response:
    """Answer an input."""
    chat = await convert(http_request, lambda: as_chat(body.to_chat()))
    request = await read_chat_request(chat, http_request, services)
    renderer = ResponsesRenderer(body, request, services)
    return await respond(http_request, request, services, renderer, streamed=body.stream)


@router.post("/v1/responses/input_tokens")
@router.post("/responses/input_tokens", include_in_schema=False)
async def count_input_tokens(
    body: ResponsesRequest, http_request: Request, services: Annotated[Services, Depends(get_services)]
) -> dict[str, Any]:
    """Count the tokens of an input."""
    chat = await convert(http_request, lambda: as_chat(body.to_chat()))
    n_tokens = await count_prompt(chat, http_request, services)
    return {"object": "response.input_tokens", "input_tokens": n_tokens}
