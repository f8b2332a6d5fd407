"""Messages between the front and the process that encodes images.

A message is two lengths, JSON, and bytes. The front trusts nothing that comes after an image: messages are
not pickled, and each number is bounded.
"""

import struct
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter

from shared.settings.model_options import FlashAttention

HEADER = struct.Struct("!II")
"""The two lengths: the number of bytes of the JSON, and of the data after it."""
MAX_JSON_BYTES = 1 << 20
MAX_ROWS = 1 << 16
"""The maximum number of rows of an image: 4 times the largest number of any model."""


class EncoderOptions(BaseModel, frozen=True):
    """The files to load, and the limits for an image.

    max_tokens: the maximum for an image; 0 means the projector's own maximum. flash_attn: the model's option,
    which changes rounding, and so the rows. decode_seconds: CPU time for reading a file. encode_seconds: CPU
    time per thread for encoding. task_bytes: the maximum memory that the process may use for an image.
    """

    model: Path
    projector: Path
    n_threads: int = 1
    max_tokens: int = 0
    offload: bool = False
    flash_attn: FlashAttention = "auto"
    decode_seconds: float = 5.0
    encode_seconds: float = 120.0
    task_bytes: int = 2 << 30


class ProjectorReady(BaseModel, frozen=True):
    """The process is ready for images. max_whole: the number of rows of each image, if they must all be
    decoded in one pass; 0: they need not be.
    """

    type: Literal["ready"] = "ready"
    n_embd: Annotated[int, Field(ge=1, le=1 << 20)]
    n_vocab: Annotated[int, Field(ge=1, le=1 << 24)]
    max_whole: Annotated[int, Field(ge=0, le=MAX_ROWS)] = 0


class EncoderFailed(BaseModel, frozen=True):
    """The files cannot be used, or encoding failed through no fault of the image."""

    type: Literal["failed"] = "failed"
    reason: str


class EncoderAlive(BaseModel, frozen=True):
    """A sign of life."""

    type: Literal["alive"] = "alive"


class ImageRefused(BaseModel, frozen=True):
    """The reason why an image cannot be read."""

    type: Literal["refused"] = "refused"
    reason: Annotated[str, Field(max_length=1000)]


class Chunk(BaseModel, frozen=True):
    """Tokens, or rows of the image: see `shared.image_span.ImageSpan`."""

    tokens: list[Annotated[int, Field(ge=0, le=1 << 24)]] = []
    n_rows: Annotated[int, Field(ge=0, le=MAX_ROWS)] = 0
    n_positions: Annotated[int, Field(ge=0, le=MAX_ROWS)] = 0
    width: Annotated[int, Field(ge=0, le=MAX_ROWS)] = 0
    whole: bool = False


class Encoded(BaseModel, frozen=True):
    """An encoded image; its rows follow, as float32 [n_rows, n_embd] for each chunk."""

    type: Literal["encoded"] = "encoded"
    chunks: list[Chunk]

    @property
    def n_rows(self) -> int:
        return sum(chunk.n_rows for chunk in self.chunks)


_AnyEncoderReply = ProjectorReady | EncoderFailed | EncoderAlive | ImageRefused | Encoded
EncoderReply = Annotated[_AnyEncoderReply, Field(discriminator="type")]
replies: TypeAdapter[_AnyEncoderReply] = TypeAdapter(EncoderReply)


def framed(message: BaseModel, payload: bytes = b"") -> bytes:
    data = message.model_dump_json().encode()
    return HEADER.pack(len(data), len(payload)) + data + payload
