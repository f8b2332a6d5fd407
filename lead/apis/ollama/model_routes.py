"""Ollama's API for its clients: chat, generate, and what they ask about models."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic_core import to_json

from lead.apis.ollama.ollama_records import (
    FOREVER,
    VERSION,
    model_details,
    model_record,
    running_record,
    tagged,
    time_text,
)
from lead.apis.ollama.ollama_render import OllamaRenderer
from lead.apis.ollama.ollama_request import OllamaChatRequest, OllamaGenerateRequest, OllamaModelRequest
from lead.generation.engine_state import EngineState
from lead.http.generation_request import as_chat, read_chat_request, read_text_request, validated
from lead.http.json_route import JsonRoute, convert
from lead.http.routes.completions import CompletionRequest
from lead.http.services import Services, get_ready_services, get_services
from lead.http.sse import respond
from shared.errors import UnsupportedError

router = APIRouter(route_class=JsonRoute, prefix="/api")

_BILLION, _MILLION = 10**9, 10**6


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
    """The version of Ollama whose API this is."""
    return {"version": VERSION}


@router.get("/tags")
async def tags(services: Annotated[Services, Depends(get_services)]) -> dict[str, Any]:
    """The one model that is served."""
    return {"models": [_about(services)]}


@router.get("/ps")
async def running(services: Annotated[Services, Depends(get_services)]) -> dict[str, Any]:
    """The model while it is in memory."""
    ready = services.engine.ready
    if ready is None or services.engine.state is EngineState.SLEEPING:
        return {"models": []}
    return {"models": [running_record(_about(services), FOREVER, ready.n_ctx_sequence)]}


@router.post("/show")
async def show(
    body: OllamaModelRequest, services: Annotated[Services, Depends(get_services)]
) -> dict[str, Any]:
    """The model's metadata, by any name: there is one model."""
    del body
    model = services.vocabulary.model
    info, thinks = model.info, ["thinking"] if model.reasons else []
    return {
        "modelfile": "",
        "parameters": "",
        "template": model.template,
        "details": _details(services),
        "model_info": {
            "general.architecture": info.architecture,
            "general.parameter_count": info.n_params,
            f"{info.architecture}.context_length": info.n_ctx_train,
            f"{info.architecture}.embedding_length": info.n_embd,
        },
        "capabilities": ["completion", "tools", *thinks, *(["vision"] if services.images else [])],
        "modified_at": time_text(services.started_at),
    }


@router.post("/pull", include_in_schema=False)
@router.post("/push", include_in_schema=False)
@router.post("/create", include_in_schema=False)
@router.post("/copy", include_in_schema=False)
@router.delete("/delete", include_in_schema=False)
async def manage() -> None:
    """Always raises UnsupportedError."""
    raise UnsupportedError("a lead serves the model that it was started with (--model)")


def _loaded(renderer: OllamaRenderer, services: Services, *, unloads: bool) -> Response:
    """A lead unloads its model by itself, with --sleep-idle-seconds: it is not loaded for being unloaded."""
    if not unloads:
        services.engine.wake()
    return Response(to_json(renderer.loaded(unloads=unloads)), media_type="application/json")


def _name(services: Services) -> str:
    return tagged(services.alias)


def _about(services: Services) -> dict[str, Any]:
    info = services.vocabulary.info
    identity = (info.name, info.size, info.n_params, info.file_type)
    modified_at = time_text(services.started_at)
    return model_record(services.alias, info.size, modified_at, identity, _details(services))


def _details(services: Services) -> dict[str, Any]:
    info = services.vocabulary.info
    n = info.n_params
    n_params = f"{n / _BILLION:.1f}B" if n >= _BILLION else f"{n / _MILLION:.2f}M"
    file_type = info.description.split()[-1] if info.description else "unknown"
    return model_details(info.architecture, n_params, file_type)
