"""A request of any of the chat APIs: its prompt, the grammar of its answer, and how the answer is parsed."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar

from fastapi import Request
from fastapi.responses import Response
from pydantic import ValidationError

from lead.chat.request import ConversationFields
from lead.http.error_responses import first_invalid
from lead.http.generation_request import GenerationRequest, read_request
from lead.http.json_route import JsonRoute
from lead.http.preparing import prepare
from lead.http.schema import GenerationFields
from lead.server.services import Services
from lead.tokenizer.jobs import CountPrompt, PrepareChat, write_conversation
from shared.errors import RequestError


class ChatRequest(GenerationFields, ConversationFields):
    """What a client posts to the chat."""


class ConvertedRoute(JsonRoute):
    """A route of another API, whose requests become chat requests: errors name the fields of that API."""

    field_names: ClassVar[Mapping[str, str]]
    """By the name in a chat request."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_renaming(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestError as error:
                self._rename(error)
                raise

        return handle_renaming

    def _rename(self, error: RequestError) -> None:
        """Without the path inside the field: it may be another one there."""
        if (name := self.field_names.get(error.param or "")) is None:
            return
        path, colon, reason = str(error).partition(": ")
        if colon and path.partition(".")[0] == error.param:
            error.args = (f"{name}: {reason}",)
        error.param = name


async def read_chat_request(
    body: ChatRequest, http_request: Request, services: Services
) -> GenerationRequest:
    """Raises RequestError naming the field at fault."""
    check_tools(body, services)
    job = PrepareChat(write_conversation(body), body.texts(services.limits))
    return await read_request(body, job, http_request, services)


def as_chat(fields: dict[str, Any]) -> ChatRequest:
    """The chat request that another API's request means; raises RequestError."""
    try:
        return ChatRequest.model_validate(fields)
    except ValidationError as error:
        raise first_invalid(error, fields) from error


def check_tools(body: ConversationFields, services: Services) -> None:
    """Raise RequestError for more tools than are accepted."""
    if len(body.tools or []) > services.limits.max_tools:
        raise RequestError(f"tools: at most {services.limits.max_tools} are accepted", "tools")


async def count_prompt(body: ConversationFields, http_request: Request, services: Services) -> int:
    """How many tokens the model reads before it answers; raises RequestError."""
    n: int = await prepare(CountPrompt(write_conversation(body)), http_request, services)
    return n
