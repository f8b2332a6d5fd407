"""Ollama's API: chat, generate, and questions about models."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic_core import to_json

from lead.apis.ollama.ollama_records import FOREVER, VERSION, running_record, tagged
from lead.apis.ollama.ollama_render import OllamaRenderer
from lead.apis.ollama.ollama_request import OllamaChatRequest, OllamaGenerateRequest, OllamaModelRequest
from lead.apis.ollama.shown_models import listed, running_sides, shown, shown_side
from lead.engine_client.engine_state import EngineState
from lead.http.generation_request import as_chat, read_chat_request, read_text_request, validated
from lead.http.json_route import JsonRoute, convert
from lead.http.routes.completions import CompletionRequest
from lead.http.services import Services, get_ready_services, get_services
from lead.http.side_models import other_models, side_models
from lead.http.sse import respond
from shared.errors import UnsupportedError

router = APIRouter(route_class=JsonRoute, prefix="/api")


@router.post("/chat")
async def chat(
    body: OllamaChatRequest, http_request: Request, services: Annotated[Services, Depends(get_ready_services)]
) -> Response:
    """Continue a conversation."""
    renderer = OllamaRenderer(body.model or _name(services), is_chat=True)
    if body.is_empty:
        return _loaded(renderer, services, unloads=body.unloads)
    fields = await convert(http_request, lambda: as_chat(body.to_chat(sees=services.images is not None)))
    request = await read_chat_request(fields, http_request, services)
    return await respond(http_request, request, services, renderer)


@router.post("/generate")
async def generate(
    body: OllamaGenerateRequest,
    http_request: Request,
    services: Annotated[Services, Depends(get_ready_services)],
) -> Response:
    """Answer a question, or continue a text."""
    renderer = OllamaRenderer(body.model or _name(services), is_chat=False)
    if body.is_empty:
        return _loaded(renderer, services, unloads=body.unloads)
    if body.raw:
        text = await convert(http_request, lambda: validated(CompletionRequest, body.to_chat()))
        request = await read_text_request(text, text.prompts(), http_request, services)
    else:
        fields = await convert(http_request, lambda: as_chat(body.to_chat(sees=services.images is not None)))
        request = await read_chat_request(fields, http_request, services)
    return await respond(http_request, request, services, renderer)


@router.get("/version")
async def version() -> dict[str, Any]:
    """Return the version of Ollama that the API imitates."""
    return {"version": VERSION}


@router.get("/tags")
async def tags(request: Request, services: Annotated[Services, Depends(get_services)]) -> dict[str, Any]:
    """Return the served model, and the models beside it."""
    others = [listed(each.name, each.info, services.started_at) for each in other_models(request.app)]
    return {"models": [_about(services), *others]}


@router.get("/ps")
async def running(request: Request, services: Annotated[Services, Depends(get_services)]) -> dict[str, Any]:
    """Return the models that are in memory."""
    found, ready = running_sides(other_models(request.app), services.started_at), services.engine.ready
    if ready is not None and services.engine.state is not EngineState.SLEEPING:
        found = [running_record(_about(services), FOREVER, ready.n_ctx_sequence), *found]
    return {"models": found}


@router.post("/show")
async def show(
    body: OllamaModelRequest, request: Request, services: Annotated[Services, Depends(get_services)]
) -> dict[str, Any]:
    """Return the metadata of the embedding model or reranker with this name, else of the served model."""
    if found := shown_side(other_models(request.app), body.model or body.name, services.started_at):
        return found
    model = services.vocabulary.model
    thinks = ["thinking"] if model.reasons else []
    embeds = ["embedding"] if len(side_models(request.app)) > len(other_models(request.app)) else []
    capabilities = ["completion", "tools", *thinks, *(["vision"] if services.images else []), *embeds]
    return shown(model.info, services.started_at, capabilities, model.template)


@router.post("/pull", include_in_schema=False)
@router.post("/push", include_in_schema=False)
@router.post("/create", include_in_schema=False)
@router.post("/copy", include_in_schema=False)
@router.delete("/delete", include_in_schema=False)
async def manage() -> None:
    """Refuse to create, copy, delete, pull or push a model."""
    raise UnsupportedError("this lead cannot change its model. Restart it with another --model")


def _loaded(renderer: OllamaRenderer, services: Services, *, unloads: bool) -> Response:
    """Return the response to a request to load or unload the model.

    A request to load it wakes the engine. A request to unload it does nothing: a lead unloads its model only
    by itself (--sleep-idle-seconds).
    """
    if not unloads:
        services.engine.wake()
    return Response(to_json(renderer.loaded(unloads=unloads)), media_type="application/json")


def _name(services: Services) -> str:
    return tagged(services.alias)


def _about(services: Services) -> dict[str, Any]:
    return listed(services.alias, services.vocabulary.info, services.started_at)
