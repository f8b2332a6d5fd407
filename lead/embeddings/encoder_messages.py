"""The messages between the front and an encoder process, pickled as those to a tokenizer process.

The front begins with `LoadEncoder`; the reply is `EncoderReady` or `LoadFailed`. Then each `TextBatch` is
answered by its vectors, in order; `Alive` may come in between.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

MAX_SEQUENCES = 64
"""The maximum number of texts that are computed together."""
L2 = 2
"""The usual norm, the Euclidean length, by which vectors are divided; -1 leaves vectors as they are."""


@dataclass(frozen=True, slots=True)
class LoadEncoder:
    """The first message: load this model.

    n_ctx: the maximum number of tokens of a text; 0: the model's training context, up to a usual limit.
    continues_texts: the model generates text, so embeddings are means of its hidden states. nice: the
    process's niceness, as in nice(2). heartbeat_seconds: the time between signs of life; 0: none.
    """

    model: Path
    n_threads: int
    n_gpu_layers: int = 0
    n_ctx: int = 0
    nice: int = 0
    heartbeat_seconds: float = 0.0
    continues_texts: bool = False


class Together(NamedTuple):
    """The limits of a batch of several texts: fewer than `n_alone` tokens each, at most `n_tokens` in all."""

    n_tokens: int = 512
    n_alone: int = 512


@dataclass(frozen=True, slots=True)
class EncoderReady:
    """The encoder is ready.

    ranks: its only output scores how well two texts match. n_out: the length of a vector. n_ctx: the maximum
    number of tokens of a text. n_batch: the maximum number of tokens of a batch. together: the limits for
    texts that share a batch.
    """

    name: str
    ranks: bool
    n_out: int
    n_ctx: int
    n_batch: int
    together: "Together"


@dataclass(frozen=True, slots=True)
class EncodedText:
    """A text to embed. n_dimensions: how many numbers of its vector to keep, from the first; 0: all. norm:
    see `L2`.
    """

    tokens: "array[int]"
    n_dimensions: int = 0
    norm: int = L2


TextBatch = Sequence[EncodedText]
Vectors = list[bytes]
"""The vectors of a batch's texts: 32-bit floats in this machine's byte order."""
