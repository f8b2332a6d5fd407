"""Routes that continue texts: `POST /v1/completions`, and `/completion` in llama-server's format."""

from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from lead.chat_format.fields import MAX_PROMPT_ELEMENTS, MAX_PROMPTS, AtMost
from lead.chat_format.unused_fields import NATIVE
from lead.http.generation_request import GenerationRequest, read_text_request
from lead.http.json_route import JsonRoute
from lead.http.render.llama_server import LlamaServerRenderer
from lead.http.render.openai import CompletionRenderer
from lead.http.schema import GenerationFields
from lead.http.services import Services, get_ready_services
from lead.http.sse import respond
from lead.tokenizer.jobs import Prompt
from shared.errors import RequestError
from shared.logs import LogLevel

router = APIRouter(route_class=JsonRoute)

TokenIds = Annotated[list[int], AtMost(MAX_PROMPT_ELEMENTS)]


class CompletionRequest(GenerationFields):
    """A completion request. A prompt is text or token ids. Each prompt in a list gets its own answers."""

    prompt: str | TokenIds | Annotated[list[str | TokenIds], AtMost(MAX_PROMPTS)]
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None

    def shows_prompt(self, log_level: LogLevel) -> bool:  # noqa: ARG002 - only a chat asks for it
        return bool(self.echo)

    def check(self) -> None:
        """Raise RequestError for values that are well-formed but not supported."""
        super().check()
        if self.suffix:
            raise RequestError("suffix: not supported. Use /infill to fill a gap", "suffix")
        if self.echo and (self.stream or self.logprobs is not None):
            raise RequestError("echo: cannot be combined with stream or logprobs", "echo")
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise RequestError("best_of: answers are not ranked. Use n", "best_of")

    def prompts(self) -> list[str | TokenIds]:
        """Return the prompts as a list; an empty list is one empty prompt."""
        if isinstance(self.prompt, str) or not self.prompt:
            return [self.prompt or ""]  # type: ignore[list-item]  # mypy keeps the list type for the empty list
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)


@router.post("/v1/completions")
async def create_completion(
    body: CompletionRequest, http_request: Request, services: Annotated[Services, Depends(get_ready_services)]
) -> Response:
    """Continue one or several texts."""
    request = await read_text_request(body, body.prompts(), http_request, services)
    renderer = CompletionRenderer(body, request, services, echo=bool(body.echo))
    return await respond(http_request, request, services, renderer)


MixedPrompt = Annotated[list[int | str], AtMost(MAX_PROMPT_ELEMENTS)]


class PromptObject(BaseModel, strict=True):
    """A prompt with related data; only text is supported."""

    prompt_string: str | MixedPrompt
    multimodal_data: Annotated[list[Any], AtMost(MAX_PROMPT_ELEMENTS)] | None = None


class NativeFields(GenerationFields):
    """The fields of a request in llama-server's own format, except its prompt."""

    unused: ClassVar = NATIVE

    return_tokens: bool | None = None
    response_fields: Annotated[list[str], AtMost(64)] | None = None

    def shows_prompt(self, log_level: LogLevel) -> bool:  # noqa: ARG002 - only a chat asks for it
        return True


class NativeRequest(NativeFields):
    """A request in llama-server's format.

    A prompt is text, token ids, or a list of both. Each prompt in a list of prompts gets its own `n` answers.
    """

    prompt: (
        str
        | PromptObject
        | Annotated[
            list[int | str | PromptObject | MixedPrompt], Field(min_length=1), AtMost(MAX_PROMPT_ELEMENTS)
        ]
    )

    def prompts(self) -> list[Prompt]:
        """Return the prompts as a list; raises RequestError."""
        given = self.prompt
        if not isinstance(given, list):
            return [_plain(given)]
        if any(isinstance(part, int) for part in given):
            if not all(isinstance(part, int | str) for part in given):
                raise RequestError("prompt: token ids and lists cannot be mixed", "prompt")
            return [given]  # type: ignore[list-item]  # checked above
        return [_plain(part) for part in given if not isinstance(part, int)]


@router.post("/completion")
@router.post("/completions", include_in_schema=False)
async def create_native_completion(
    body: NativeRequest, http_request: Request, services: Annotated[Services, Depends(get_ready_services)]
) -> Response:
    """Continue one or several texts; the body is an object for one answer, a list for several."""
    request = await read_text_request(body, body.prompts(), http_request, services)
    return await respond_as_llama_server(body, request, http_request, services)


async def respond_as_llama_server(
    body: NativeFields, request: GenerationRequest, http_request: Request, services: Services
) -> Response:
    """Answer in the format of `/completion`."""
    renderer = LlamaServerRenderer(
        request, services, return_tokens=bool(body.return_tokens), response_fields=body.response_fields
    )
    return await respond(http_request, request, services, renderer)


def _plain(prompt: PromptObject | Prompt) -> Prompt:
    if not isinstance(prompt, PromptObject):
        return prompt
    if prompt.multimodal_data is not None:
        raise RequestError("prompt: only text is supported, not multimodal_data", "prompt")
    return prompt.prompt_string
