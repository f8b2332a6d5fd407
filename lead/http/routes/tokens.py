"""`POST /tokenize`, `/detokenize` and `/apply-template`: from text to tokens and back, generating nothing."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel

from lead.chat.fields import MAX_PROMPT_ELEMENTS, AtMost, NullIsDefault
from lead.chat.request import ConversationFields
from lead.http.generation_request import check_tools, prepare
from lead.http.json_route import JsonRoute
from lead.server.services import Services, get_services
from lead.tokenizer.jobs import DetokenizeIds, Job, RenderPrompt, TokenizeText, write_conversation

router = APIRouter(route_class=JsonRoute)


class TokenizeRequest(NullIsDefault, strict=True):
    """Text to split."""

    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeRequest(BaseModel, strict=True):
    """Tokens to join."""

    tokens: Annotated[list[int], AtMost(MAX_PROMPT_ELEMENTS)]


@router.post("/tokenize")
async def tokenize(
    body: TokenizeRequest, http_request: Request, services: Annotated[Services, Depends(get_services)]
) -> Response:
    """The tokens of a text; with_pieces: each with its text, or its bytes if they are not valid UTF-8."""
    job = TokenizeText(body.content, body.add_special, body.parse_special, body.with_pieces)
    return await _respond(job, http_request, services)


@router.post("/detokenize")
async def detokenize(
    body: DetokenizeRequest, http_request: Request, services: Annotated[Services, Depends(get_services)]
) -> Response:
    """The text of tokens, control tokens included."""
    return await _respond(DetokenizeIds(body.tokens), http_request, services)


@router.post("/apply-template")
async def apply_template(
    body: ConversationFields, http_request: Request, services: Annotated[Services, Depends(get_services)]
) -> Response:
    """The prompt that `/v1/chat/completions` would make the model continue."""
    check_tools(body, services)
    return await _respond(RenderPrompt(write_conversation(body)), http_request, services)


async def _respond(job: Job, http_request: Request, services: Services) -> Response:
    """A response whose body the tokenizer process has written: it may be large."""
    return Response(await prepare(job, http_request, services), media_type="application/json")
