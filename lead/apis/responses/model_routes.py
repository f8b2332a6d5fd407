"""The route `/v1/responses`. A request is converted to a chat request; nothing is stored."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from lead.apis.responses.responses_render import ResponsesRenderer
from lead.apis.responses.responses_request import ResponsesRequest
from lead.http.generation_request import as_chat, count_prompt, read_chat_request
from lead.http.json_route import JsonRoute, convert
from lead.http.services import Services, get_ready_services, get_services
from lead.http.sse import respond

router = APIRouter(route_class=JsonRoute)


@router.post("/v1/responses")
@router.post("/responses", include_in_schema=False)
async def create_response(
    body: ResponsesRequest, http_request: Request, services: Annotated[Services, Depends(get_ready_services)]
) -> Response:
    """Return the response to an input."""
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
