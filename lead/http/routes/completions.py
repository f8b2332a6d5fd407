"""`POST /v1/completions`: continue one text, or several."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from lead.chat.bounds import MAX_PROMPT_ELEMENTS, MAX_PROMPTS, AtMost
from lead.http.answers import respond
from lead.http.generation_request import read_text_request
from lead.http.json_route import JsonRoute
from lead.http.render.openai import CompletionRenderer
from lead.http.schema import GenerationFields
from lead.server.services import Services, get_ready_services
from shared.errors import RequestError

router = APIRouter(route_class=JsonRoute)

TokenIds = Annotated[list[int], AtMost(MAX_PROMPT_ELEMENTS)]


class CompletionRequest(GenerationFields):
    """What a client posts. A prompt is text or token ids; a list of them asks for one answer each."""

    prompt: str | TokenIds | Annotated[list[str | TokenIds], AtMost(MAX_PROMPTS)]
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None

    def check(self) -> None:
        """Raise RequestError for what is well-formed but not supported."""
        super().check()
        if self.suffix:
            raise RequestError("suffix: the model continues a text, it does not fill a gap", "suffix")
        if self.echo and (self.stream or self.logprobs is not None):
            raise RequestError("echo: cannot be combined with stream or logprobs", "echo")
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise RequestError("best_of: answers are not ranked; ask for n of them", "best_of")

    def prompts(self) -> list[str | TokenIds]:
        """The prompts one by one; an empty list is one empty prompt."""
        if isinstance(self.prompt, str) or not self.prompt:
            return [self.prompt or ""]  # type: ignore[list-item]  # mypy keeps the list type for the empty list
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)


@router.post("/v1/completions")
async def create_completion(
    body: CompletionRequest, http_request: Request, services: Annotated[Services, Depends(get_ready_services)]
) -> Response:
    """Continue text."""
    request = await read_text_request(body, body.prompts(), http_request, services)
    renderer = CompletionRenderer(body, request, services, echo=bool(body.echo))
    return await respond(http_request, request, services, renderer, streamed=body.stream)
