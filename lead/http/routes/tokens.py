"""`POST /tokenize`, `/detokenize` and `/apply-template`: from text to tokens and back, generating nothing."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from lead.chat.request import ConversationFields
from lead.http.chat_request import check_tools, render_prompt
from lead.server.services import Services, get_services
from shared.errors import RequestError
from shared.llama.vocabulary import Vocabulary

router = APIRouter()

MAX_TOKENS = 1 << 20


class TokenizeRequest(BaseModel):
    """Text to split."""

    model_config = ConfigDict(strict=True)

    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeRequest(BaseModel):
    """Tokens to join."""

    model_config = ConfigDict(strict=True)

    tokens: Annotated[list[int], Field(max_length=MAX_TOKENS)]


@router.post("/tokenize")
async def tokenize(
    body: TokenizeRequest, services: Annotated[Services, Depends(get_services)]
) -> dict[str, list[Any]]:
    """The tokens of a text; with_pieces: each with its text, or its bytes if they are not valid UTF-8."""
    return {"tokens": await asyncio.to_thread(_tokenize, body, services.vocabulary)}


@router.post("/detokenize")
async def detokenize(
    body: DetokenizeRequest, services: Annotated[Services, Depends(get_services)]
) -> dict[str, str]:
    """The text of tokens, control tokens included."""
    try:
        return {"content": await asyncio.to_thread(services.vocabulary.detokenize, body.tokens)}
    except ValueError as error:
        raise RequestError(f"tokens: {error}", "tokens") from error


@router.post("/apply-template")
async def apply_template(
    body: ConversationFields, services: Annotated[Services, Depends(get_services)]
) -> dict[str, str]:
    """The prompt that `/v1/chat/completions` would make the model continue."""
    check_tools(body, services)
    return {"prompt": await asyncio.to_thread(render_prompt, body, services)}


def _tokenize(body: TokenizeRequest, vocabulary: Vocabulary) -> list[Any]:
    tokens = vocabulary.tokenize(body.content, add_special=body.add_special, parse_special=body.parse_special)
    if not body.with_pieces:
        return tokens
    return [{"id": token, "piece": _piece(vocabulary.piece(token, special=True))} for token in tokens]


def _piece(data: bytes) -> str | list[int]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)
