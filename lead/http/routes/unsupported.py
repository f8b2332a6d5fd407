"""llama-server's endpoints that the lead does not have: 501 with a reason, as llama-server answers."""

from collections.abc import Awaitable, Callable, Mapping

from fastapi import APIRouter

from shared.errors import UnsupportedError

router = APIRouter(include_in_schema=False)

_EMBEDDINGS = "This server does not support embeddings: it generates text"
_RERANKING = "This server does not support reranking: it generates text"
_AUDIO = "The current model does not support audio input."
REASONS: Mapping[str, str] = {
    "/embedding": _EMBEDDINGS,
    "/embeddings": _EMBEDDINGS,
    "/v1/embeddings": _EMBEDDINGS,
    "/rerank": _RERANKING,
    "/reranking": _RERANKING,
    "/v1/rerank": _RERANKING,
    "/v1/reranking": _RERANKING,
    "/v1/audio/transcriptions": _AUDIO,
    "/infill": "Infill is not supported: there is no text before and after a gap, only one before the end",
    "/lora-adapters": "This server does not support adapters: the model runs as its file says",
    "/props": "This server does not support changing global properties",
}
"""By path of the POST requests."""


def _refusing(reason: str) -> Callable[[], Awaitable[None]]:
    async def refuse() -> None:
        raise UnsupportedError(reason)

    return refuse


for _path, _reason in REASONS.items():
    router.post(_path)(_refusing(_reason))
