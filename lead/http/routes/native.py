"""`POST /completion`: continue a text, or several, in llama-server's own form."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from lead.chat.bounds import MAX_PROMPT_ELEMENTS, AtMost
from lead.http.answers import respond
from lead.http.generation_request import read_text_request
from lead.http.json_route import JsonRoute
from lead.http.render.llama_server import LlamaServerRenderer
from lead.http.schema import GenerationFields
from lead.server.services import Services, get_ready_services
from lead.tokenizer.jobs import Prompt
from shared.errors import RequestError

router = APIRouter(route_class=JsonRoute)


MixedPrompt = Annotated[list[int | str], AtMost(MAX_PROMPT_ELEMENTS)]


class PromptObject(BaseModel):
    """A prompt with what belongs to it; only text is understood."""

    model_config = ConfigDict(strict=True)

    prompt_string: str | MixedPrompt
    multimodal_data: Annotated[list[Any], AtMost(MAX_PROMPT_ELEMENTS)] | None = None


class NativeRequest(GenerationFields):
    """What a client posts.

    A prompt is text, token ids, or both in turn; a list of such asks for one answer each.
    """

    prompt: (
        str
        | PromptObject
        | Annotated[
            list[int | str | PromptObject | MixedPrompt], Field(min_length=1), AtMost(MAX_PROMPT_ELEMENTS)
        ]
    )
    return_tokens: bool | None = None
    response_fields: Annotated[list[str], AtMost(64)] | None = None

    def prompts(self) -> list[Prompt]:
        """The prompts one by one; raises RequestError."""
        given = self.prompt
        if not isinstance(given, list):
            return [_plain(given)]
        if any(isinstance(part, int) for part in given):
            if not all(isinstance(part, int | str) for part in given):
                raise RequestError("prompt: token ids and lists do not mix", "prompt")
            return [given]  # type: ignore[list-item]  # checked above
        return [_plain(part) for part in given if not isinstance(part, int)]


@router.post("/completion")
@router.post("/completions", include_in_schema=False)
async def create_native_completion(
    body: NativeRequest, http_request: Request, services: Annotated[Services, Depends(get_ready_services)]
) -> Response:
    """Continue text; one object for one prompt, a list of them for several."""
    request = await read_text_request(body, body.prompts(), http_request, services)
    renderer = LlamaServerRenderer(
        request,
        services,
        return_tokens=bool(body.return_tokens),
        response_fields=body.response_fields,
    )
    return await respond(http_request, request, services, renderer, streamed=body.stream)


def _plain(prompt: PromptObject | Prompt) -> Prompt:
    if not isinstance(prompt, PromptObject):
        return prompt
    if prompt.multimodal_data is not None:
        raise RequestError("prompt: only text is understood, no multimodal_data", "prompt")
    return prompt.prompt_string
