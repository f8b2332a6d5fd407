"""`GET /health`, `/v1/models` and `/props`: the server and its model, as llama-server describes them."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from lead.engine_client.engine_state import EngineState
from lead.http.error_responses import error_response, http_error
from lead.http.render.answer_parts import public_settings
from lead.http.services import Services, get_ready_services, get_services
from lead.http.side_models import model_meta, other_models, side_models, side_record
from shared.errors import NotServingError, UnsupportedError
from shared.sampling.parameters import SamplingParameters

router = APIRouter()


@router.get("/health")
@router.get("/v1/health", include_in_schema=False)
async def health(request: Request) -> Response:
    """Return 200 while requests are served, and 503 while the lead starts, ends or restarts its engine."""
    services: Services | None = request.app.state.services
    if request.app.state.is_leaving:
        return error_response(NotServingError(EngineState.STOPPED.value), status="draining")
    if services is None or services.engine.state is EngineState.STARTING:
        raise NotServingError("Loading model")
    if services.engine.state is EngineState.RESTARTING:
        error = NotServingError(EngineState.RESTARTING.value)
        return error_response(error, status="restarting")
    get_ready_services(request)
    return JSONResponse({"status": "ok"})


@router.get("/v1/models")
@router.get("/models", include_in_schema=False)
async def models(request: Request, services: Annotated[Services, Depends(get_services)]) -> dict[str, Any]:
    """Return the served model, and the models beside it."""
    others = other_models(request.app)
    records = [side_record(each, services.settings.tag_names, services.started_at) for each in others]
    capabilities = ["completion", *(["multimodal"] if services.images else [])]
    of_ollama = [_ollama_record(each.name, [each.task]) for each in others]
    return {
        "object": "list",
        "data": [_record(services), *records],
        "models": [_ollama_record(services.alias, capabilities), *of_ollama],
    }


@router.get("/v1/models/{name:path}")
@router.get("/models/{name:path}", include_in_schema=False)
async def model(
    name: str, request: Request, services: Annotated[Services, Depends(get_services)]
) -> Response:
    """Return a model by one of its names."""
    if name in services.aliases:
        return JSONResponse(_record(services))
    for other in other_models(request.app):
        if name == other.name:
            return JSONResponse(side_record(other, services.settings.tag_names, services.started_at))
    message = f"the model {name!r} does not exist; this lead serves {services.alias!r}"
    return http_error(404, message, "not_found_error", code="model_not_found")


def _record(services: Services) -> dict[str, Any]:
    info = services.vocabulary.info
    ready = services.engine.ready
    return {
        "id": services.alias,
        "aliases": services.aliases,
        "tags": services.settings.tag_names,
        "object": "model",
        "created": services.started_at,
        "owned_by": "llama-duo",
        "architecture": {
            "input_modalities": ["text", *(["image"] if services.images else [])],
            "output_modalities": ["text"],
        },
        "meta": model_meta(info) | {"n_ctx": ready.n_ctx_sequence if ready else None},
    }


@router.get("/lora-adapters")
async def adapters(services: Annotated[Services, Depends(get_services)]) -> list[dict[str, Any]]:
    """Return the LoRA adapters (`--lora`), which are applied to all requests."""
    return [
        {"id": number, "path": str(each.path), "scale": each.scale, "task_name": "", "prompt_prefix": ""}
        for number, each in enumerate(services.settings.compute.lora)
    ]


@router.get("/props")
async def props(
    request: Request, services: Annotated[Services, Depends(get_ready_services)]
) -> dict[str, Any]:
    """Return settings and properties of the model."""
    model, ready = services.vocabulary.model, services.engine.ready
    assert ready
    defaults = public_settings(SamplingParameters(seed=0), None) | services.settings.sampling.model_dump()
    defaults["n_keep"] = services.settings.keep
    return {
        "default_generation_settings": {"n_ctx": ready.n_ctx_sequence, "params": defaults},
        "total_slots": ready.n_slots,
        "model_alias": services.alias,
        "model_path": str(model.info.path),
        "lora_adapters": await adapters(services),
        "chat_template": model.template,
        "bos_token": model.bos_text,
        "eos_token": model.eos_text,
        "modalities": {"vision": services.images is not None, "video": False, "audio": False},
        "endpoint_slots": services.settings.slots,
        "endpoint_props": False,
        "endpoint_metrics": services.settings.metrics,
        "is_sleeping": services.engine.state is EngineState.SLEEPING,
        "build_info": model.build,
        "cpu_kernel": model.cpu_kernel,
        # what llama-server does not have
        "context_shift": services.settings.context_shift,
        "speculates": ready.speculates,
        "exact": ready.exactness.is_on,
        "exact_cost": ready.exactness.cost,
        "promise": ready.exactness.guarantee,
        "draft_model": ready.draft_model,
        "mtp": ready.mtp,
        "devices": ready.devices,
        "other_models": {each.name: each.task for each in side_models(request.app)},
    }


def _ollama_record(name: str, capabilities: list[str]) -> dict[str, Any]:
    """Return the record that llama-server adds for Ollama's clients; most fields are empty there, too."""
    return {
        "name": name,
        "model": name,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [""],
        "capabilities": capabilities,
        "parameters": "",
        "details": {"format": "gguf", "family": "", "families": [""], "parameter_size": ""},
    }


_AUDIO = "The current model does not support audio input."
REASONS: Mapping[str, str] = {
    "/v1/audio/transcriptions": _AUDIO,
    "/lora-adapters": "This server cannot change adapters. Set them with --lora",
    "/props": "This server does not support changing global properties",
}
"""By path: the reason why POST requests to this route of llama-server are answered with 501."""


def _refusing(reason: str) -> Callable[[], Awaitable[None]]:
    async def refuse() -> None:
        raise UnsupportedError(reason)

    return refuse


for _path, _reason in REASONS.items():
    router.post(_path, include_in_schema=False)(_refusing(_reason))
