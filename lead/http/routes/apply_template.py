"""`POST /apply-template`: the text of a prompt, which is not continued."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends

from lead.chat.request import ConversationFields
from lead.http.chat_requests import check_tools, render_prompt
from lead.server.services import Services, provide

router = APIRouter()


@router.post("/apply-template")
async def apply_template(
    body: ConversationFields, services: Annotated[Services, Depends(provide)]
) -> dict[str, str]:
    """What `/v1/chat/completions` would make the model continue."""
    check_tools(body, services)
    return {"prompt": await asyncio.to_thread(render_prompt, body, services)}
