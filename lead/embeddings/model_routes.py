"""Endpoints for embeddings and reranking in OpenAI's, Ollama's, llama-server's and Jina's APIs."""

import base64
import time
import uuid
from array import array
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic_core import to_json

from lead.embeddings.embedding_requests import (
    EmbeddingRequest,
    OllamaEmbeddingsRequest,
    OllamaEmbedRequest,
    RankedPair,
    RerankRequest,
)
from lead.embeddings.vector_model import Found, VectorModel, VectorOptions, models_of
from lead.http.client_gone import cancel_on_disconnect
from lead.http.json_route import BodyReader, JsonRoute, client_of
from shared.errors import UnsupportedError

router = APIRouter(route_class=JsonRoute)

_NO_EMBEDDINGS = "This server does not support embeddings. Start it with `--embedding-model FILE`"
_NO_RANKS = "This server does not support reranking. Start it with `--rerank-model FILE`"


@router.post("/v1/embeddings")
async def embeddings(body: EmbeddingRequest, http_request: Request) -> Response:
    """Return the vectors of texts."""
    model = _embedder(http_request)
    asked = VectorOptions(body.field, body.dimensions, body.embd_normalize)
    found = await cancel_on_disconnect(
        http_request, model.compute(client_of(http_request), body.texts(), asked)
    )
    as_text = body.encoding_format == "base64"

    def write() -> bytes:
        records = [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64.b64encode(vector).decode() if as_text else _numbers(vector),
            }
            for index, vector in enumerate(found.vectors)
        ]
        return to_json(_list(body.model or model.name, found, data=records))

    return await _respond(http_request, found, write)


@router.post("/embedding", include_in_schema=False)
@router.post("/embeddings", include_in_schema=False)
async def native_embeddings(body: EmbeddingRequest, http_request: Request) -> Response:
    """Return the vectors of texts, as llama-server's own route does."""
    model = _embedder(http_request)
    asked = VectorOptions(body.field, body.dimensions, body.embd_normalize)
    found = await cancel_on_disconnect(
        http_request, model.compute(client_of(http_request), body.texts(), asked)
    )

    def write() -> bytes:
        return to_json(
            [{"index": index, "embedding": [_numbers(each)]} for index, each in enumerate(found.vectors)]
        )

    return await _respond(http_request, found, write)


@router.post("/api/embed", include_in_schema=False)
async def ollama_embed(body: OllamaEmbedRequest, http_request: Request) -> Response:
    """Return the vectors of texts, as Ollama's route does; texts that are too long are cut."""
    model, began = _embedder(http_request), time.perf_counter_ns()
    asked = VectorOptions("input", body.dimensions, truncates=body.truncate)
    texts = body.texts()
    computing = model.compute(client_of(http_request), texts, asked)
    found = await cancel_on_disconnect(http_request, computing) if texts else Found([], 0)

    def write() -> bytes:
        return to_json(
            {
                "model": body.model or model.name,
                "embeddings": [_numbers(each) for each in found.vectors],
                "total_duration": time.perf_counter_ns() - began,
                "load_duration": 0,
                "prompt_eval_count": found.n_tokens,
            }
        )

    return await _respond(http_request, found, write)


@router.post("/api/embeddings", include_in_schema=False)
async def ollama_embeddings(body: OllamaEmbeddingsRequest, http_request: Request) -> Response:
    """Return the vector of one text, as Ollama's older route does; it is not normalized."""
    model = _embedder(http_request)
    asked = VectorOptions("prompt", norm=-1, truncates=True)
    computing = model.compute(client_of(http_request), [body.prompt], asked)
    found = await cancel_on_disconnect(http_request, computing)
    return await _respond(http_request, found, lambda: to_json({"embedding": _numbers(found.vectors[0])}))


@router.post("/v1/rerank")
@router.post("/v1/reranking", include_in_schema=False)
@router.post("/v2/rerank", include_in_schema=False)
@router.post("/rerank", include_in_schema=False)
@router.post("/reranking", include_in_schema=False)
async def rerank(body: RerankRequest, http_request: Request) -> Response:
    """Return scores of how well each text answers a question, best first."""
    model = models_of(http_request.app).ranker
    if model is None:
        raise UnsupportedError(_NO_RANKS)
    texts = body.candidates()
    pairs = [RankedPair(body.query, text) for text in texts]
    asked = VectorOptions("documents" if body.texts is None else "texts", truncates=body.truncate)
    found = await cancel_on_disconnect(http_request, model.compute(client_of(http_request), pairs, asked))
    scores = [array("f", vector)[0] for vector in found.vectors]
    best = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[: body.top_n]
    if body.texts is not None:
        of_text = [
            {"index": i, "score": scores[i]} | ({"text": texts[i]} if body.return_text else {}) for i in best
        ]
        return await _respond(http_request, found, lambda: to_json(of_text))
    results = [
        {"index": i, "relevance_score": scores[i]}
        | ({"document": {"text": texts[i]}} if body.return_documents else {})
        for i in best
    ]
    record = {"id": str(uuid.uuid4())} | _list(body.model or model.name, found, results=results)
    return await _respond(http_request, found, lambda: to_json(record))


def _embedder(http_request: Request) -> VectorModel:
    """Return the model that computes vectors; raises UnsupportedError if there is none."""
    model = models_of(http_request.app).embedder
    if model is None:
        raise UnsupportedError(_NO_EMBEDDINGS)
    return model


def _numbers(vector: bytes) -> list[float]:
    return array("f", vector).tolist()


def _list(model: str, found: Found, **records: list[dict[str, Any]]) -> dict[str, Any]:
    usage = {"prompt_tokens": found.n_tokens, "total_tokens": found.n_tokens}
    return {"object": "list", "model": model, "usage": usage} | records


async def _respond(http_request: Request, found: Found, write: Callable[[], bytes]) -> Response:
    """Return the response with the vectors; many numbers are written in a thread."""
    bodies: BodyReader = http_request.app.state.bodies
    n_bytes = sum(map(len, found.vectors))
    text = await bodies.run(client_of(http_request), n_bytes, write)
    return Response(text, media_type="application/json")
