"""The projector of a model (`mmproj`), in llama.cpp's libmtmd: from an image file to rows of embeddings.

llama_cpp does not load libmtmd; see `make images`.
"""

import ctypes
import functools
import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from lead.images.messages import Chunk
from shared.errors import ModelLoadError, RequestError
from shared.llama import library
from shared.llama.native import FOLDER, llama_cpp
from shared.llama.vocabulary import load_native
from shared.model_files.projector_file import check_fits
from shared.settings.model_options import FlashAttention

_MISSING = (
    f"--mmproj needs llama.cpp's image library libmtmd, which is not in {FOLDER}. Build it with `make images`"
)
_MISMATCH = re.compile(r"text model \(n_embd = (\d+)\) and mmproj \(n_embd = (\d+)\)")
_IMAGE_CHUNK = 1
_FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}
"""Values of llama.cpp's `llama_flash_attn_type`."""
_SAMPLE_SIDE = 224


@functools.cache
def _mtmd() -> Any:
    """Return llama_cpp's bindings of libmtmd; raises ModelLoadError."""
    os.environ.setdefault("MTMD_CPP_LIB", str(FOLDER))
    try:
        mtmd = importlib.import_module("llama_cpp.mtmd_cpp")
    except (OSError, RuntimeError) as error:
        is_there = "not found" not in str(error)  # but it cannot be loaded
        raise ModelLoadError(f"--mmproj: {error}" if is_there else _MISSING) from error
    mtmd.mtmd_log_set(library.LOG_CALLBACK, ctypes.c_void_p(0))
    return mtmd


class Projector:
    """A loaded projector with its model, which has no weights here. One image at a time."""

    def __init__(
        self,
        model: Path,
        file: Path,
        *,
        n_threads: int = 1,
        max_tokens: int = 0,
        offload: bool = False,
        flash_attn: FlashAttention = "auto",
    ) -> None:
        """max_tokens: the maximum number of rows per image; 0: the file's maximum. Raises ModelLoadError."""
        check_fits(model, file)
        library.start()
        self._mtmd = mtmd = _mtmd()
        parameters = llama_cpp.llama_model_default_params()
        parameters.no_alloc, parameters.n_gpu_layers = True, 0  # no weights, but their sizes
        parameters.load_mode = llama_cpp.llama_load_mode_from_str(b"none")
        native = load_native(model, parameters)
        self.n_embd: int = llama_cpp.llama_model_n_embd_inp(native)
        self.n_vocab: int = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(native))
        options = mtmd.mtmd_context_params_default()
        options.use_gpu, options.n_threads, options.warmup = offload, n_threads, False
        options.print_timings, options.flash_attn_type = False, _FLASH_ATTENTION[flash_attn]
        if max_tokens:
            options.image_max_tokens = max_tokens
        with library.captured_log() as lines:
            self._context = mtmd.mtmd_init_from_file(os.fsencode(file), native, options)
        if not self._context or not mtmd.mtmd_support_vision(self._context):
            raise ModelLoadError(_reason(model, file, lines))
        self._has_grid = bool(mtmd.mtmd_decode_use_mrope(self._context))
        self._is_whole = bool(mtmd.mtmd_decode_use_non_causal(self._context, None))

    @functools.cached_property
    def max_whole(self) -> int:
        """The number of rows of each image, if they must all be decoded in one pass; otherwise 0. All images
        of such models have the same size.
        """
        with _Bitmap(self._mtmd, self._mtmd.mtmd_bitmap_init(_SAMPLE_SIDE, _SAMPLE_SIDE, None)) as sample:
            return max((chunk.n_rows for chunk, _ in self._chunks(sample) if chunk.whole), default=0)

    def decode(self, data: bytes) -> "_Bitmap":
        """Return the pixels of a file that has passed `check_header`; raises RequestError."""
        buffer = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
        found = self._mtmd.mtmd_helper_bitmap_init_from_buf(self._context, buffer, len(data), False)
        if not found:
            raise RequestError("messages: an image cannot be read: its file is damaged", "messages")
        return _Bitmap(self._mtmd, found)

    def encode(self, bitmap: "_Bitmap") -> tuple[list[Chunk], bytes]:
        """Return the tokens and rows that the model reads for an image, and the embeddings of all rows;
        raises RequestError.
        """
        chunks, rows = [], []
        for chunk, native in self._chunks(bitmap):
            chunks.append(chunk)
            if chunk.n_rows:
                if self._mtmd.mtmd_encode_chunk(self._context, native):
                    raise RequestError("messages: an image cannot be read: encoding it failed", "messages")
                embeddings = self._mtmd.mtmd_get_output_embd(self._context)
                rows.append(ctypes.string_at(embeddings, 4 * self.n_embd * chunk.n_rows))
        return chunks, b"".join(rows)

    def _chunks(self, bitmap: "_Bitmap") -> Iterator[tuple[Chunk, Any]]:
        mtmd = self._mtmd
        part = mtmd.mtmd_input_part(None, bitmap.native)
        parts = (ctypes.POINTER(mtmd.mtmd_input_part) * 1)(ctypes.pointer(part))
        found = mtmd.mtmd_input_chunks_init()
        try:
            if mtmd.mtmd_tokenize_from_parts(self._context, found, parts, 1, False):
                raise RequestError(
                    "messages: an image cannot be read: it has an impossible shape", "messages"
                )
            for i in range(mtmd.mtmd_input_chunks_size(found)):
                native = mtmd.mtmd_input_chunks_get(found, i)
                yield self._chunk(native), native
        finally:
            mtmd.mtmd_input_chunks_free(found)

    def _chunk(self, native: Any) -> Chunk:
        mtmd = self._mtmd
        if mtmd.mtmd_input_chunk_get_type(native) != _IMAGE_CHUNK:
            n = ctypes.c_size_t()
            tokens = mtmd.mtmd_input_chunk_get_tokens_text(native, ctypes.byref(n))
            if min(found := tokens[: n.value], default=0) < 0:
                raise ModelLoadError(
                    "--mmproj: the model's vocabulary lacks the tokens around images, so the "
                    "projector belongs to another model"
                )
            return Chunk(tokens=found)
        n_rows = mtmd.mtmd_input_chunk_get_n_tokens(native)
        return Chunk(
            n_rows=n_rows,
            n_positions=mtmd.mtmd_input_chunk_get_n_pos(native),
            width=self._width(native, n_rows) if self._has_grid else 0,
            whole=self._is_whole,
        )

    def _width(self, native: Any, n_rows: int) -> int:
        """Return the number of columns in an image's grid: the number of rows before the first row with a
        larger y.
        """
        image = self._mtmd.mtmd_input_chunk_get_tokens_image(native)
        down = (i for i in range(n_rows) if self._mtmd.mtmd_image_tokens_get_decoder_pos(image, 0, i).y)
        return next(down, n_rows)


class _Bitmap:
    """Pixels; freed when the context ends."""

    def __init__(self, mtmd: Any, native: Any) -> None:
        self._mtmd, self.native = mtmd, native

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._mtmd.mtmd_bitmap_free(self.native)


def _reason(model: Path, file: Path, lines: list[str]) -> str:
    """Return why libmtmd has not loaded a projector."""
    if found := next(filter(None, map(_MISMATCH.search, lines)), None):
        return (
            f"--mmproj: {file} does not belong to {model}. Its embeddings have {found[2]} "
            f"dimensions, but the model needs {found[1]}"
        )
    said = next((line.strip() for line in reversed(lines) if line.strip()), "llama.cpp does not say why")
    return f"--mmproj: {file} cannot be loaded: {said}"
