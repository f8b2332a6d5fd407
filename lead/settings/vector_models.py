"""Options for models that compute embeddings, beside the model that generates text."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from shared.errors import ConfigError
from shared.model_files.file_facts import size_if_known
from shared.model_files.file_kind import RANK, parts_of, pooling_of
from shared.settings.model_options import MAX_CTX, MAX_THREADS
from shared.settings.options import GpuLayers, OptionError, OptionGroup, ThreadCount

COMPUTING_BYTES = 256 << 20
"""The memory that an embedding or reranking model takes besides its weights."""
_USUAL_CTX = 2048
"""The default maximum number of tokens of a text: attention takes memory with the square of this number."""


class VectorModelOptions(OptionGroup):
    """Models that compute vectors, served at the same address, each in its own process."""

    embedding_model: Path | None = Field(
        None,
        description="path of an embedding model (GGUF), such as BERT, nomic-embed, bge-m3, jina, "
        "Qwen3-Embedding or EmbeddingGemma. It answers /v1/embeddings, /api/embed and /embedding. "
        "To serve only embeddings, use --model",
    )
    rerank_model: Path | None = Field(
        None,
        description="path of a reranker (GGUF), such as bge-reranker, jina-reranker or Qwen3-Reranker. It "
        "answers /v1/rerank",
    )
    serve_embeddings: bool = Field(
        False,
        description="answer /v1/embeddings with the mean of the hidden states of --model. A separate process "
        "computes it on the CPU with the same weights. An embedding model gives better vectors",
    )
    embedding_ctx_size: int = Field(
        0,
        ge=0,
        le=MAX_CTX,
        description="maximum number of tokens of a text to embed or rerank; 0: the training context, at most "
        "2048. Memory grows with the square of this number",
    )
    embedding_threads: ThreadCount = Field(
        0,
        ge=0,
        le=MAX_THREADS,
        description="number of CPU threads of each embedding or reranking model; 0: one per physical core "
        "that --threads does not use, at least one. These threads have the lowest priority, so the engine "
        "goes first on shared cores",
    )
    embedding_gpu_layers: GpuLayers = Field(
        0,
        ge=-2,
        description="number of layers of each embedding or reranking model in VRAM; 0: none. Any negative "
        "value, auto and all mean all layers",
    )

    @model_validator(mode="after")
    def _check_embedder(self) -> Self:
        if self.serve_embeddings and self.embedding_model:
            raise OptionError("serve_embeddings", "cannot be combined with --embedding-model")
        return self

    @property
    def asked(self) -> str:
        """The first option that requests a model for vectors; empty if none does."""
        names = ("embedding_model", "rerank_model", "serve_embeddings")
        return next((name for name in names if getattr(self, name)), "")

    @property
    def n_bytes(self) -> int:
        """The host memory of these models in bytes, without the weights of --serve-embeddings."""
        sizes = [size_if_known(path) for path in (self.embedding_model, self.rerank_model) if path]
        return sum(sizes) + COMPUTING_BYTES * (len(sizes) + self.serve_embeddings)

    def located(self) -> Self:
        """Return the options with existing files of the right kind; raises ConfigError."""
        if path := self.embedding_model:
            parts_of(path)
            pooling = pooling_of(path)
            if pooling is None:
                raise ConfigError(f"--embedding-model: {path} is a text model, not an embedding model")
            if pooling == RANK:
                raise ConfigError(f"--embedding-model: {path} is a reranker. Use --rerank-model")
        if path := self.rerank_model:
            parts_of(path)
            if pooling_of(path) != RANK:
                raise ConfigError(f"--rerank-model: {path} is not a reranker: its file has no rank head")
        return self.model_copy(
            update={
                name: path.absolute()
                for name in ("embedding_model", "rerank_model")
                if (path := getattr(self, name))
            }
        )


def max_text_tokens(chosen: int, n_trained: int) -> int:
    """Return the maximum number of tokens of a text. chosen: `embedding_ctx_size`. n_trained: the training
    context; 0 if it is unknown.
    """
    return min(chosen or _USUAL_CTX, n_trained or _USUAL_CTX)
