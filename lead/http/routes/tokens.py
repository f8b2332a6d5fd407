"""`POST /tokenize`, `/detokenize` and `/apply-template`: convert text to tokens and back."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel

from lead.chat_format.fields import MAX_PROMPT_ELEMENTS, AtMost, NullIsDefault
from lead.chat_format.request import ConversationFields
from lead.http.generation_request import check_tools, prepare
from lead.http.images import with_markers, without_markers
from lead.http.json_route import JsonRoute
from lead.http.services import Services, get_services
from lead.tokenizer.jobs import TokenizerJobs, write_conversation

router = APIRouter(route_class=JsonRoute)


class TokenizeRequest(NullIsDefault, strict=True):
    """The text to split into tokens."""

    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeRequest(BaseModel, strict=True):
    """The tokens to join."""

    tokens: Annotated[list[int], AtMost(MAX_PROMPT_ELEMENTS)]


@router.post("/tokenize")
async def tokenize(
    body: TokenizeRequest, http_request: Request, services: Annotated[Services, Depends(get_services)]
) -> Response:
    """Return the tokens of a text.

    With `with_pieces`, each token has its text, or its bytes if they are not valid UTF-8.
    """
    options = body.model_dump(exclude={"content"})
    return _response(await prepare(http_request, services, TokenizerJobs.tokenize, body.content, **options))


@router.post("/detokenize")
async def detokenize(
    body: DetokenizeRequest, http_request: Request, services: Annotated[Services, Depends(get_services)]
) -> Response:
    """Return the text of tokens, including control tokens."""
    return _response(await prepare(http_request, services, TokenizerJobs.detokenize, body.tokens))


@router.post("/apply-template")
async def apply_template(
    body: ConversationFields, http_request: Request, services: Annotated[Services, Depends(get_services)]
) -> Response:
    """Return the prompt that `/v1/chat/completions` would give the model."""
    check_tools(body, services)
    body, images = await with_markers(body, http_request, services)
    conversation = write_conversation(body)
    prompt = await prepare(http_request, services, TokenizerJobs.render_prompt, conversation)
    return _response(without_markers(prompt, images))


def _response(body: bytes) -> Response:
    """Return a response with a body that the tokenizer process has written, because it may be large."""
    return Response(body, media_type="application/json")
