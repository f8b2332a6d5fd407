"""The routes of Ollama's API in a lead that serves only embeddings or reranking: questions about models."""

import time
from typing import Any

from fastapi import APIRouter, Request

from lead.apis.ollama.ollama_records import VERSION
from lead.apis.ollama.ollama_request import OllamaModelRequest
from lead.apis.ollama.shown_models import listed, running_sides, shown_side
from lead.http.json_route import JsonRoute
from lead.http.side_models import side_models
from shared.errors import RequestError

router = APIRouter(route_class=JsonRoute, prefix="/api")

_STARTED_AT = time.time()


@router.get("/version")
async def version() -> dict[str, Any]:
    """Return the version of Ollama that the API imitates."""
    return {"version": VERSION}


@router.get("/tags")
async def tags(request: Request) -> dict[str, Any]:
    """Return the models that are served."""
    return {"models": [listed(each.name, each.info, _STARTED_AT) for each in side_models(request.app)]}


@router.get("/ps")
async def running(request: Request) -> dict[str, Any]:
    """Return the models in memory."""
    return {"models": running_sides(side_models(request.app), _STARTED_AT)}


@router.post("/show")
async def show(body: OllamaModelRequest, request: Request) -> dict[str, Any]:
    """Return a model's metadata; raises RequestError."""
    models = side_models(request.app)
    if found := shown_side(models, body.model or body.name, _STARTED_AT):
        return found
    raise RequestError(
        f"model: not found. Available models: {', '.join(each.name for each in models) or 'none'}", "model"
    )
