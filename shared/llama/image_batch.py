"""Decodes the rows of images: embeddings from another process, in place of tokens."""

import mmap
from typing import Any

import numpy as np

from shared.image_span import ImageMemory, ImageSpan
from shared.llama.batch import NativeBatch
from shared.llama.native import llama_cpp
from shared.llama.span import Span

_N_SECTIONS = 4
"""The number of sections of a position under M-RoPE: t, y, x and z, one array after the other."""


class ImageDecoder:
    """Decodes the rows of images in one context."""

    def __init__(self, model: Any, context: Any, images: ImageMemory) -> None:
        """`model` is a llama_model, `context` a llama_context."""
        self._context = context
        self._n_embd: int = llama_cpp.llama_model_n_embd(model)
        types = {llama_cpp.LLAMA_ROPE_TYPE_MROPE, llama_cpp.LLAMA_ROPE_TYPE_IMROPE}
        self._n_sections = _N_SECTIONS if llama_cpp.llama_model_rope_type(model) in types else 1
        self._memory = mmap.mmap(images.descriptor, images.n_bytes, access=mmap.ACCESS_READ)

    def decode(self, span: Span, position: int) -> int:
        """Decode some or all rows of an image in one pass; return the result of llama_decode.

        position: the position of the image's first row.
        """
        image, n = span.image, len(span.tokens)
        assert image
        first = span.start - image.start
        rows = np.frombuffer(
            self._memory, np.float32, n * self._n_embd, image.offset + 4 * first * self._n_embd
        )
        batch = _ImageBatch(rows, n, self._n_sections)
        native = batch.filled(span.slot, position, first, image)
        if not image.whole:
            code: int = llama_cpp.llama_decode(self._context, native)
            return code
        llama_cpp.llama_set_causal_attn(self._context, False)
        try:
            code = llama_cpp.llama_decode(self._context, native)
        finally:
            llama_cpp.llama_set_causal_attn(self._context, True)
        return code


class _ImageBatch(NativeBatch):
    """`n` rows of an image."""

    def __init__(self, rows: Any, n: int, n_sections: int) -> None:
        super().__init__(n, rows, with_tokens=False, n_sections=n_sections)
        self._n, self._n_sections = n, n_sections

    def filled(self, slot: int, position: int, first: int, image: ImageSpan) -> Any:
        """Return the llama_batch with the rows from `first` on, none of which has logits."""
        numbers = np.arange(first, first + self._n, dtype=np.int32)
        sections = np.broadcast_to(numbers, (_N_SECTIONS, self._n))
        if image.width:
            zeros = np.zeros_like(numbers)
            sections = np.stack((zeros, numbers // image.width, numbers % image.width, zeros))
        positions = position + sections
        if image.width:
            positions[-1] = 0
        self._position[:] = positions[: self._n_sections].ravel()
        self._slot[:] = slot
        self.native.n_tokens = self._n
        return self.native
