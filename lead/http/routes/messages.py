"""`POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's API, on the same core as the chat."""

import json
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from lead.chat.anthropic_request import CountRequest, MessagesRequest
from lead.http.answers import respond
from lead.http.chat_request import ChatRequest, as_chat, count_prompt, read_chat_request
from lead.http.error_responses import error_response, first_invalid, http_error
from lead.http.json_route import JsonRoute, convert
from lead.http.render.anthropic import AnthropicRenderer
from lead.server.services import Services, get_ready_services, get_services
from shared.errors import DuoError, NotServingError

_ERRORS = {400: "invalid_request_error", 413: "request_too_large", 503: "overloaded_error"}
_ADVICE = {"retry-after", "x-should-retry", NotServingError.HEADER}
"""Headers of an error that this API's clients, or routers, read as well."""


class _AnthropicRoute(JsonRoute):
    """Errors in Anthropic's shape."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_in_shape(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                return _in_shape(error_response(first_invalid(error)))
            except HTTPException as error:
                return _in_shape(http_error(error.status_code, error.detail, "invalid_request_error"))
            except DuoError as error:
                return _in_shape(error_response(error))

        return handle_in_shape


router = APIRouter(route_class=_AnthropicRoute)


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


def _in_shape(plain: JSONResponse) -> JSONResponse:
    message = json.loads(bytes(plain.body))["error"]["message"]
    kind = _ERRORS.get(plain.status_code, "api_error")
    body = {"type": "error", "error": {"type": kind, "message": message}}
    headers = {name: value for name, value in plain.headers.items() if name in _ADVICE}
    return JSONResponse(body, plain.status_code, headers)
