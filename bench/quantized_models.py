"""The bench's targets with weights of every type that llama.cpp can write."""

from pathlib import Path

from bench import models
from shared.llama.quantize import quantize

TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k_m", "q6_k")
SMALL = "small"
"""The shipped target's own size."""


def quantized_target(size: str, weights: str) -> Path:
    """The target of this size ("small", or one of `bench.models`) with these weights, kept in the cache."""
    source = models.shipped_target("f16") if size == SMALL else models.target(f"{size}:f16")
    path = source.with_name(f"bench-{size}-{weights}-{source.stem.rpartition('-')[2]}.gguf")
    if not path.is_file():
        quantize(source, path, weights)
    return path
