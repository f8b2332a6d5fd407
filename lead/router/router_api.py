"""The router's own routes, which list, load and unload models; other requests are forwarded to a model."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Query, Request, WebSocket
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from lead.apis.ollama.ollama_records import (
    FOREVER,
    LATEST,
    VERSION,
    keep_seconds,
    model_details,
    model_record,
    running_record,
    tagged,
    time_text,
)
from lead.http.error_responses import error_response, http_error
from lead.http.json_route import BodyReader, JsonRoute
from lead.http.middleware.auth import has_principal, without_key
from lead.router.back_relay import BackRelay
from lead.router.forwarding import Forwarder
from lead.router.model_host import ModelHost
from lead.router.model_pool import MemorySizes, ModelState, PooledModel
from lead.router.model_process import ModelProcess
from lead.router.models_file import ServedModel
from shared.errors import ConfigError, NotServingError, RequestError, UnavailableError
from shared.model_files.file_facts import size_if_known, task_of
from shared.model_files.file_kind import read_beginning

router = APIRouter(route_class=JsonRoute)

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_OF_BACKS = {"/v1/speculation/vocabulary", "/v1/speculation"}
_UNLOADING = {"/api/chat": "messages", "/api/generate": "prompt"}
"""A field for each path of Ollama's API. A request with `keep_alive: 0` but without this field only unloads
the model.
"""
_PATHS_OF_TASKS = {
    "embedding": ("/embed", "/embedding", "/embeddings"),
    "rerank": ("/rerank", "/reranking"),
}
"""The ends of paths for models that do not continue texts, by task."""
Name = Annotated[str, Field(max_length=1000)]


@dataclass(frozen=True, slots=True)
class RouterServices:
    """The objects that routes use. started_at: Unix time in seconds. reload: searches for models again."""

    host: ModelHost
    forwarder: Forwarder
    relay: BackRelay
    started_at: int
    reload: Callable[[], Awaitable[None]]

    def find(self, name: str) -> str | None:
        """Return the name of the model that a request calls `name`; None: there is none."""
        models = self.host.models
        for wanted in (name, name.removesuffix(LATEST)):
            if wanted in models:
                return wanted
            for model in models.values():
                if wanted in {*model.aliases, tagged(model.name), tagged(model.name).removesuffix(LATEST)}:
                    return model.name
        return None

    def default(self, path: str) -> str | None:
        """Return the model for requests that name none: the last used model for `path`, else one loaded at
        the start, else the only model.
        """
        task = next((task for task, ends in _PATHS_OF_TASKS.items() if path.endswith(ends)), None)
        for model in self.host.pool.awake():
            process = self.host.process(model.name)
            if process is None or process.about.record.get("task") == task:
                return model.name
        starting = [model.name for model in self.host.models.values() if model.on_startup or model.pinned]
        return next(iter(starting), None) or (
            next(iter(self.host.models)) if len(self.host.models) == 1 else None
        )


def get_router_services(request: Request) -> RouterServices:
    services: RouterServices = request.app.state.services
    return services


Routing = Annotated[RouterServices, Depends(get_router_services)]


class RoutedFields(BaseModel):
    """The fields that the router reads in the body of any request."""

    model: Name | None = None
    name: Name | None = None  # sent by older clients of Ollama
    keep_alive: float | Annotated[str, Field(max_length=100)] | None = None
    messages: Any = None
    prompt: Any = None


class ModelByName(BaseModel):
    model: Name


@router.get("/health")
@router.get("/v1/health", include_in_schema=False)
async def health(request: Request) -> Response:
    """Return 200 until the router is about to end, whether or not a model is loaded."""
    if request.app.state.is_leaving:
        return error_response(NotServingError("stopped"), status="draining")
    return JSONResponse({"status": "ok"})


@router.get("/v1/models")
@router.get("/models", include_in_schema=False)
async def list_models(services: Routing, reload: Annotated[str, Query(max_length=8)] = "") -> dict[str, Any]:
    """Return all models, and which of them are in memory. reload: search for model files first."""
    if reload not in {"", "0", "false"}:
        try:
            await services.reload()
        except ConfigError as error:
            raise UnavailableError(f"models were not reloaded: {error}") from error
    room = await asyncio.to_thread(services.host.room)
    files = await _files(services.host.models.values())
    found = [model for model in services.host.models.values() if model.name in files]  # it may be a new list
    return {
        "object": "list",
        "data": [_record(model, services, files[model.name], room) for model in found],
        "models": [{"name": model.name, "model": model.name} for model in found],
    }


@router.post("/models/load")
async def load(body: ModelByName, services: Routing) -> Response:
    """Begin to load a model; /v1/models shows the progress."""
    if (name := services.find(body.model)) is None:
        return _unknown(body.model, services)
    services.host.preload(name)
    return JSONResponse({"success": True})


@router.post("/models/unload")
async def unload(body: ModelByName, services: Routing) -> Response:
    """Unload a model after its running requests."""
    if (name := services.find(body.model)) is None:
        return _unknown(body.model, services)
    services.host.unload(name)
    return JSONResponse({"success": True})


@router.get("/v1/models/{name:path}")
@router.get("/models/{name:path}", include_in_schema=False)
async def show_model(name: str, services: Routing) -> Response:
    """Return the record of a model, by any of its names."""
    if (found := services.find(name)) is None:
        return _unknown(name, services)
    model = services.host.models[found]
    room = await asyncio.to_thread(services.host.room)
    files = await _files([model])
    if found not in services.host.models:  # it was removed meanwhile
        return _unknown(name, services)
    return JSONResponse(_record(model, services, files[found], room))


@router.get("/api/version")
async def version() -> dict[str, Any]:
    """Return the version of Ollama that the API imitates."""
    return {"version": VERSION}


@router.get("/api/tags")
async def tags(services: Routing) -> dict[str, Any]:
    """Return all models, for clients of Ollama."""
    return {"models": list((await _ollama_records(services.host.models.values())).values())}


@router.get("/api/ps")
async def running(services: Routing) -> dict[str, Any]:
    """Return the models in memory, for clients of Ollama."""
    records = await _ollama_records(services.host.models.values())
    awake = [pooled for pooled in services.host.pool.awake() if pooled.name in records]
    return {"models": [_running_record(each, services, records[each.name]) for each in awake]}


@router.websocket("/v1/speculation")
async def follow(socket: WebSocket) -> None:
    """Serve a back's connection (`BackRelay`)."""
    if not has_principal(socket):
        await socket.send_denial_response(without_key())
        return
    services: RouterServices = socket.app.state.services
    await services.relay.follow(socket)


everything_else = APIRouter(include_in_schema=False)
"""The routes that are tried after all others."""


@everything_else.api_route("/{path:path}", methods=_METHODS)
async def forward(request: Request, services: Routing) -> Response:
    """Forward a request to the model in the body or in `?model=`; without a name, to the default model."""
    if not has_principal(request):
        return without_key()
    bodies: BodyReader = request.app.state.bodies
    body, fields = await bodies.read(request, RoutedFields)
    fields = fields or RoutedFields()
    path = request.scope["path"]
    wanted = request.query_params.get("model") or fields.model or fields.name
    if wanted:
        name = services.find(wanted)
        if name is None:
            return _unknown(wanted, services)
    else:
        name = _unnamed(request, services)
    seconds = keep_seconds(fields.keep_alive)
    is_posted = request.method == "POST"
    if seconds == 0 and is_posted and path in _UNLOADING and not getattr(fields, _UNLOADING[path]):
        services.host.unload(name)
        return JSONResponse(_unloaded(wanted or name, is_chat=path == "/api/chat"))
    if is_posted and path == "/api/show" and services.host.process(name) is None:
        return JSONResponse(await asyncio.to_thread(_details_of, services.host.models[name]))
    return await services.forwarder.answer(request, name, body, seconds)


def _unnamed(request: Request, services: RouterServices) -> str:
    """Return the model for a request that names none; only a POST request starts it."""
    is_of_back = request.scope["path"] in _OF_BACKS
    name = services.relay.model_for(request) if is_of_back else services.default(request.scope["path"])
    if name is not None and (request.method == "POST" or services.host.process(name)):
        return name
    names = ", ".join(services.host.models) or "none"
    if request.method == "POST" and name is None:
        raise RequestError(f"choose a model: {names}", "model")
    raise NotServingError(f"no model is in memory. Choose a model (?model=): {names}")


def _unknown(name: str, services: RouterServices) -> Response:
    names = ", ".join(services.host.models) or "none"
    message = f"the model {name!r} does not exist. Available models: {names}"
    return http_error(404, message, "not_found_error", code="model_not_found")


class _FileFacts(NamedTuple):
    """Facts from a model's file. task: its task, if it does not continue texts."""

    n_bytes: int
    task: str | None


async def _files(models: Iterable[ServedModel]) -> dict[str, _FileFacts]:
    """Return the facts of each model by name, read in a thread because a disk may be slow."""
    found = list(models)
    return await asyncio.to_thread(lambda: {model.name: _file(model.path) for model in found})


def _file(path: Path | None) -> _FileFacts:
    return _FileFacts(size_if_known(path), task_of(path) if path else None)


async def _ollama_records(models: Iterable[ServedModel]) -> dict[str, dict[str, Any]]:
    """Return the records for clients of Ollama, by name."""
    found = list(models)
    return await asyncio.to_thread(lambda: {model.name: _ollama_record(model) for model in found})


def _record(
    model: ServedModel, services: RouterServices, file: _FileFacts, room: MemorySizes
) -> dict[str, Any]:
    """Return the record of a model as in llama-server's router, with a loaded model's own data."""
    pooled, process = services.host.state(model.name), services.host.process(model.name)
    need = services.host.needs.get(model.name)
    return {
        "id": model.name,
        "aliases": [model.name, *model.aliases],
        "tags": model.settings.tag_names,
        "object": "model",
        "created": services.started_at,
        "owned_by": "llama-duo",
        "path": str(model.path or ""),
        "status": _status(pooled),
        "pinned": model.pinned,
        "architecture": _architecture(model, process),
        "needs": need.sizes if need else None,
        "fits": services.host.fits(model.name, file.n_bytes, room),
        "meta": process.about.record.get("meta") if process else {"size": file.n_bytes},
    } | ({"task": file.task} if file.task else {})


def _architecture(model: ServedModel, process: ModelProcess | None) -> dict[str, Any]:
    """Return a loaded model's own record; for other models, a record from their options."""
    if process and (told := process.about.record.get("architecture")):
        return dict(told)
    inputs = ["text", *(["image"] if model.settings.images.mmproj else [])]
    return {"input_modalities": inputs, "output_modalities": ["text"]}


def _status(pooled: PooledModel) -> dict[str, Any]:
    """Return the status for clients.

    A model being unloaded counts as loaded: a request for it is served later.
    """
    if pooled.state is ModelState.UNLOADED and pooled.failure:
        return {"value": "unloaded", "failed": True, "exit_code": 1, "message": pooled.failure}
    return {"value": "loaded" if pooled.state is ModelState.UNLOADING else pooled.state.value}


def _ollama_record(model: ServedModel) -> dict[str, Any]:
    size = size_if_known(model.path)
    identity = (str(model.path), size)
    return model_record(model.name, size, _modified(model.path), identity, _ollama_details(model))


def _ollama_details(model: ServedModel) -> dict[str, Any]:
    beginning = read_beginning(model.path) if model.path else {}
    return model_details(
        beginning.get("general.architecture", ""), beginning.get("general.size_label", ""), ""
    )


def _running_record(pooled: PooledModel, services: RouterServices, record: dict[str, Any]) -> dict[str, Any]:
    process = services.host.process(pooled.name)
    until = FOREVER
    if math.isfinite(pooled.idle_seconds) and not pooled.pinned:
        until = time_text(time.time() + pooled.idle_seconds)
    meta = process.about.record.get("meta", {}) if process else {}
    return running_record(record, until, meta.get("n_ctx"))


def _details_of(model: ServedModel) -> dict[str, Any]:
    """Return the reply to /api/show for a model that is not loaded; does not load it."""
    details = _ollama_details(model)
    task = task_of(model.path) if model.path else None
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": details,
        "model_info": {"general.architecture": details["family"]},
        "capabilities": [task] if task else ["completion", "tools"],
        "modified_at": _modified(model.path),
    }


def _unloaded(name: str, *, is_chat: bool) -> dict[str, Any]:
    text: dict[str, Any] = {"message": {"role": "assistant", "content": ""}} if is_chat else {"response": ""}
    ended = {"done": True, "done_reason": "unload"}
    return {"model": name, "created_at": time_text()} | text | ended


def _modified(path: Path | None) -> str:
    try:
        seconds = path.stat().st_mtime if path else 0.0
    except OSError:
        seconds = 0.0
    return time_text(int(seconds))
