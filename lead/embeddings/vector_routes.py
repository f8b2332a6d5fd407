"""Answers of a lead whose model generates no text: information on it, and why other requests are refused."""

import time
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request, WebSocket
from fastapi.responses import JSONResponse, Response

from lead.embeddings.vector_model import VectorModel, models_of
from lead.engine_client.engine_state import EngineState
from lead.http.client_gone import close_socket
from lead.http.error_responses import error_response, http_error
from lead.http.middleware.auth import has_principal, without_key
from lead.http.side_models import SideModel, side_record
from lead.settings.lead_settings import LeadSettings
from shared.errors import NotServingError, UnsupportedError
from shared.protocol import Refused

router = APIRouter()

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


@dataclass(frozen=True, slots=True)
class AboutLead:
    """The value of `app.state.vector_lead`. model: the model of --model."""

    settings: LeadSettings
    model: VectorModel
    started_at: int = field(default_factory=lambda: int(time.time()))


@router.get("/health")
@router.get("/v1/health", include_in_schema=False)
async def health(request: Request) -> Response:
    """Return 200 while requests are served; raises NotServingError until all models are ready."""
    if request.app.state.is_leaving:
        return error_response(NotServingError(EngineState.STOPPED.value), status="draining")
    for each in models_of(request.app):
        assert each.ready  # it raises NotServingError
    return JSONResponse({"status": "ok"})


@router.get("/v1/models")
@router.get("/models", include_in_schema=False)
async def models(request: Request) -> dict[str, Any]:
    """Return the models for embeddings and reranking."""
    about: AboutLead = request.app.state.vector_lead
    return {"object": "list", "data": [_record(each.describe(), about) for each in models_of(request.app)]}


@router.get("/v1/models/{name:path}")
@router.get("/models/{name:path}", include_in_schema=False)
async def model(name: str, request: Request) -> Response:
    """Return one of the models, by name."""
    about: AboutLead = request.app.state.vector_lead
    for each in models_of(request.app):
        if name == each.name:
            return JSONResponse(_record(each.describe(), about))
    message = f"the model {name!r} does not exist; this lead serves {about.model.name!r}"
    return http_error(404, message, "not_found_error", code="model_not_found")


@router.get("/props")
async def props(request: Request) -> dict[str, Any]:
    """Return the settings and properties of the model."""
    about: AboutLead = request.app.state.vector_lead
    ready = about.model.ready
    return {
        "default_generation_settings": {"n_ctx": ready.n_ctx},
        "total_slots": 1,
        "model_alias": about.model.name,
        "model_path": str(about.model.path),
        "modalities": {"vision": False, "video": False, "audio": False},
        "endpoint_slots": False,
        "endpoint_props": False,
        "endpoint_metrics": about.settings.metrics,
        "is_sleeping": about.model.encoder.state is EngineState.SLEEPING,
    }


def _record(model: SideModel, about: AboutLead) -> dict[str, Any]:
    return side_record(model, about.settings.tag_names, about.started_at)


@router.websocket("/v1/speculation")
async def speculation(socket: WebSocket) -> None:
    """Refuse a back; the message for its log says that this lead needs no backs."""
    if not has_principal(socket):
        await close_socket(socket, 1008)
        return
    await socket.accept()
    await socket.receive_text()  # its hello
    about: AboutLead = socket.app.state.vector_lead
    refusal = Refused(reason=_why_not(about))
    await socket.send_text(refusal.model_dump_json())
    await close_socket(socket, 1008)


@router.api_route("/{path:path}", methods=_METHODS, include_in_schema=False)
async def everything_else(request: Request) -> Response:
    """Refuse the request: raises UnsupportedError."""
    if not has_principal(request):
        return without_key()
    raise UnsupportedError(_why_not(request.app.state.vector_lead))


def _why_not(about: AboutLead) -> str:
    if (ready := about.model.encoder.ready) and ready.ranks:
        does = "reranks texts (/v1/rerank)"
    else:
        does = "embeds texts (/v1/embeddings)"
    return f"{about.model.name} {does} and cannot generate text. Use a text model"
