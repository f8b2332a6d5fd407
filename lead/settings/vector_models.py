"""Models that make vectors of texts, beside the one that continues them."""

from pathlib import Path
from typing import Self

from pydantic import Field

from shared.errors import ConfigError
from shared.models.file_kind import RANK, parts_of, pooling_of
from shared.settings.model_options import MAX_CTX, MAX_THREADS
from shared.settings.options import GpuLayers, OptionGroup, ThreadCount


class VectorModelOptions(OptionGroup):
    """Served at the same address, each in a process of its own."""

    embedding_model: Path | None = Field(
        None,
        description="path of an embedding model (GGUF), such as BERT, nomic-embed, bge-m3, jina, "
        "Qwen3-Embedding or EmbeddingGemma: answers /v1/embeddings, /api/embed and /embedding. A lead "
        "whose --model is such a file serves just that",
    )
    rerank_model: Path | None = Field(
        None,
        description="path of a reranker (GGUF), such as bge-reranker, jina-reranker or Qwen3-Reranker: "
        "answers /v1/rerank",
    )
    embedding_ctx_size: int = Field(
        0,
        ge=0,
        le=MAX_CTX,
        description="the most tokens of a text that these models read; 0: as many as they were trained with, "
        "but at most 2048. Memory grows with its square",
    )
    embedding_threads: ThreadCount = Field(
        0,
        ge=0,
        le=MAX_THREADS,
        description="number of CPU threads of each of these models; 0: those that --threads leaves, at least "
        "one. They yield to the engine where they share cores with it",
    )
    embedding_gpu_layers: GpuLayers = Field(
        0,
        ge=-2,
        description="number of layers of these models to store in VRAM; -1 or auto, -2 or all: all",
    )

    @property
    def is_wanted(self) -> bool:
        return self.embedding_model is not None or self.rerank_model is not None

    def located(self) -> Self:
        """With files that are there, and of the right kind; raises ConfigError."""
        if path := self.embedding_model:
            parts_of(path)
            pooling = pooling_of(path)
            if pooling is None:
                raise ConfigError(f"--embedding-model: {path} is no embedding model: it continues texts")
            if pooling == RANK:
                raise ConfigError(f"--embedding-model: {path} is a reranker: name it with --rerank-model")
        if path := self.rerank_model:
            parts_of(path)
            if pooling_of(path) != RANK:
                raise ConfigError(
                    f"--rerank-model: {path} is no reranker: its file does not say that it has a rank head"
                )
        return self.model_copy(
            update={
                name: path.absolute()
                for name in ("embedding_model", "rerank_model")
                if (path := getattr(self, name))
            }
        )
