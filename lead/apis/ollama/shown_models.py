"""The records that Ollama's clients get about the models of a lead."""

from collections.abc import Iterable, Sequence
from typing import Any

from lead.apis.ollama.ollama_records import (
    FOREVER,
    LATEST,
    model_details,
    model_record,
    running_record,
    tagged,
    time_text,
)
from lead.http.side_models import SideModel
from shared.llama.model_info import ModelInfo

_BILLION, _MILLION = 10**9, 10**6


def listed(name: str, info: ModelInfo, started_at: float) -> dict[str, Any]:
    """Return a model's record in `/api/tags`. started_at: Unix time."""
    identity = (info.name, info.size, info.n_params, info.file_type)
    return model_record(name, info.size, time_text(started_at), identity, _details(info))


def shown(
    info: ModelInfo, started_at: float, capabilities: Sequence[str], template: str = ""
) -> dict[str, Any]:
    """Return the response of `/api/show`. started_at: Unix time."""
    return {
        "modelfile": "",
        "parameters": "",
        "template": template,
        "details": _details(info),
        "model_info": {
            "general.architecture": info.architecture,
            "general.parameter_count": info.n_params,
            f"{info.architecture}.context_length": info.n_ctx_train,
            f"{info.architecture}.embedding_length": info.n_embd,
        },
        "capabilities": capabilities,
        "modified_at": time_text(started_at),
    }


def running_sides(models: Iterable[SideModel], started_at: float) -> list[dict[str, Any]]:
    """Return the records in `/api/ps` of those models that are in memory. started_at: Unix time."""
    return [
        running_record(listed(each.name, each.info, started_at), FOREVER, each.n_ctx)
        for each in models
        if each.is_loaded
    ]


def shown_side(models: Iterable[SideModel], name: str, started_at: float) -> dict[str, Any] | None:
    """Return the response of `/api/show` for the embedding model or reranker `name`; None: no such model."""
    wanted = name.removesuffix(LATEST)
    for each in models:
        if wanted in {each.name, tagged(each.name).removesuffix(LATEST)}:
            return shown(each.info, started_at, [each.task])
    return None


def _details(info: ModelInfo) -> dict[str, Any]:
    n = info.n_params
    n_params = f"{n / _BILLION:.1f}B" if n >= _BILLION else f"{n / _MILLION:.2f}M"
    file_type = info.description.split()[-1] if info.description else "unknown"
    return model_details(info.architecture, n_params, file_type)
