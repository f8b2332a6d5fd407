"""The models that a lead serves beside its text model, as its routes show them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import FastAPI

from shared.llama.model_info import ModelInfo


@dataclass(frozen=True, slots=True)
class SideWork:
    """The work that a model has done, in texts, tokens and seconds, and the number of texts that wait."""

    n_texts: int
    n_tokens: int
    seconds: float
    n_waiting: int


@dataclass(frozen=True, slots=True)
class SideModel:
    """A model that serves embeddings or reranking and has been ready.

    n_ctx: the maximum number of tokens of a text. n_out: the number of values computed for a text. is_other:
    False if the lead's text model itself does this task.
    """

    name: str
    task: Literal["embedding", "rerank"]
    info: ModelInfo
    n_ctx: int
    n_out: int
    is_loaded: bool
    work: SideWork
    is_other: bool = True


def show_side_models(app: FastAPI, find: Callable[[], Sequence[SideModel]]) -> None:
    """Set the function whose result `side_models` returns."""
    app.state.find_side_models = find


def side_models(app: FastAPI) -> Sequence[SideModel]:
    find: Callable[[], Sequence[SideModel]] | None = getattr(app.state, "find_side_models", None)
    return find() if find else ()


def other_models(app: FastAPI) -> list[SideModel]:
    """Return the models except the text model itself."""
    return [model for model in side_models(app) if model.is_other]


def side_record(model: SideModel, tags: Sequence[str], created_at: int) -> dict[str, Any]:
    """Return a record as in OpenAI's list of models, with llama-server's `meta`. created_at: Unix time."""
    return {
        "id": model.name,
        "aliases": [model.name],
        "tags": tags,
        "object": "model",
        "created": created_at,
        "owned_by": "llama-duo",
        "task": model.task,
        "meta": model_meta(model.info) | {"n_ctx": model.n_ctx, "n_embd": model.n_out},
    }


def model_meta(info: ModelInfo) -> dict[str, Any]:
    return {
        "vocab_type": info.vocab_type,
        "n_vocab": info.n_vocab,
        "n_ctx_train": info.n_ctx_train,
        "n_embd": info.n_embd,
        "n_params": info.n_params,
        "size": info.size,
    }
