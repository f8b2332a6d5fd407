"""A loaded model that computes the embedding of a text. Not thread-safe."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lead.embeddings.encoder_messages import (
    L2,
    MAX_SEQUENCES,
    EncodedText,
    EncoderReady,
    LoadEncoder,
    TextBatch,
    Together,
)
from lead.settings.vector_models import max_text_tokens
from shared.errors import DecodeFatalError, ModelLoadError
from shared.llama import devices, library
from shared.llama.batch import NativeBatch
from shared.llama.native import llama_cpp
from shared.llama.vocabulary import Vocabulary, load_native
from shared.model_files.file_kind import RANK, pooling_of

_MIN_BATCH = 512
_ON_CPU, _ON_GPU = Together(128, 64), Together(512, 512)
"""Limits of a batch. Larger batches are not faster, and on a CPU batches of long texts are not faster either.
The other texts in a batch change the order of sums, and so the fourth digit of a vector's numbers.
"""
_N_SHORT = 64
"""A single text with fewer tokens is computed faster without flash attention: by a tenth with 16 tokens, by
two fifths with 48. On a CPU llama.cpp's flash attention reads one row of such a text at a time.
"""
_FLASH_ATTENTION_OFF, _FLASH_ATTENTION_AUTO = 0, -1
"""Values of llama.cpp's `llama_flash_attn_type`."""
_N_SUMMED = 64
"""The maximum number of tokens that are decoded at once if the states of all tokens are summed."""

Vector = NDArray[np.float32]


class VectorEncoder:
    def __init__(self, load: LoadEncoder) -> None:
        """Load the model; raises ModelLoadError."""
        pooling = pooling_of(load.model)
        self._sums = load.continues_texts
        if pooling is None and not self._sums:
            raise ModelLoadError(f"{load.model} is a text model, not an embedding model. Use --model")
        library.start()
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = load.n_gpu_layers
        parameters.use_extra_bufts = not self._sums  # its weights stay in the file that the engine has mapped
        self._model = load_native(load.model, parameters, writes_text=self._sums)
        self._vocabulary = Vocabulary(self._model, load.model)
        info = self._vocabulary.info
        n_ctx = max_text_tokens(load.n_ctx, info.n_ctx_train)
        self._n_batch = max(n_ctx, _MIN_BATCH)
        pooling_type = pooling or llama_cpp.LLAMA_POOLING_TYPE_MEAN
        is_on_cpu = not (load.n_gpu_layers and devices.has_gpu())
        if self._sums:
            pooling_type = llama_cpp.LLAMA_POOLING_TYPE_NONE
        self._context = self._open(load, pooling_type, self._n_batch)
        self._for_short = None
        if is_on_cpu and not self._sums:
            self._for_short = self._open(load, pooling_type, _N_SHORT, _FLASH_ATTENTION_OFF)
        self._batch = _EncoderBatch(self._n_batch)
        n_out = llama_cpp.llama_model_n_cls_out if pooling == RANK else llama_cpp.llama_model_n_embd_out
        self.about = EncoderReady(
            info.name,
            pooling == RANK,
            n_out(self._model),
            n_ctx,
            self._n_batch,
            _ON_CPU if is_on_cpu else _ON_GPU,
        )

    def _open(
        self, load: LoadEncoder, pooling: int, n_batch: int, flash_attn: int = _FLASH_ATTENTION_AUTO
    ) -> Any:
        parameters = llama_cpp.llama_context_default_params()
        parameters.embeddings = True
        parameters.pooling_type = pooling
        # Texts are neither cut into ubatches nor spread over streams of a cache: each is pooled at once.
        parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = n_batch
        parameters.flash_attn_type = flash_attn
        if self._sums:  # small batches: a larger one would have logits of a whole text
            parameters.n_batch = parameters.n_ubatch = _N_SUMMED
        parameters.kv_unified = True
        parameters.n_seq_max = MAX_SEQUENCES
        parameters.n_threads = parameters.n_threads_batch = load.n_threads
        parameters.op_offload = load.n_gpu_layers != 0
        parameters.no_perf = True
        context = llama_cpp.llama_init_from_model(self._model, parameters)
        if not context:
            llama_cpp.llama_model_free(self._model)
            raise ModelLoadError(
                f"{load.model}: not enough memory for texts of {n_batch} tokens. Lower "
                "--embedding-ctx-size or --embedding-gpu-layers"
            )
        return context

    def encode(self, batch: TextBatch) -> list[bytes]:
        """Return the embeddings of at most MAX_SEQUENCES texts with at most `n_batch` tokens in all.

        Raises ValueError for larger batches, DecodeFatalError.
        """
        self._batch.check([text.tokens for text in batch], self._vocabulary.n_tokens, self.about.n_ctx)
        if self._sums:
            return [self._finish(self._mean(text.tokens), text) for text in batch]
        is_short = len(batch) == 1 and len(batch[0].tokens) < _N_SHORT
        context = self._for_short if self._for_short and is_short else self._context
        self._batch.fill([text.tokens for text in batch])
        self._decode(context)
        return [self._finish(self._read(context, number), text) for number, text in enumerate(batch)]

    def _mean(self, tokens: Sequence[int]) -> Vector:
        """Return the mean of the last hidden states of a model that generates text."""
        total = np.zeros(self.about.n_out)
        for first in range(0, len(tokens), _N_SUMMED):
            part = tokens[first : first + _N_SUMMED]
            self._batch.fill([part], first)
            self._decode(self._context, goes_on=first > 0)
            states = llama_cpp.llama_get_embeddings(self._context)
            total += np.ctypeslib.as_array(states, (len(part), self.about.n_out)).sum(0, np.float64)
        return (total / len(tokens)).astype(np.float32)

    def _decode(self, context: Any, *, goes_on: bool = False) -> None:
        """Decode a batch. goes_on: the batch continues the texts that were decoded before."""
        memory = llama_cpp.llama_get_memory(context)
        if memory and not goes_on:
            llama_cpp.llama_memory_clear(memory, False)
        if status := llama_cpp.llama_decode(context, self._batch.native):
            raise DecodeFatalError(f"computing embeddings failed: llama_decode returned {status}")

    def close(self) -> None:
        for context in filter(None, (self._context, self._for_short)):
            llama_cpp.llama_free(context)
        llama_cpp.llama_model_free(self._model)

    def _read(self, context: Any, number: int) -> Vector:
        address = llama_cpp.llama_get_embeddings_seq(context, number)
        values = ctypes.cast(address, ctypes.POINTER(ctypes.c_float * self.about.n_out)).contents
        return np.array(values, np.float32)

    def _finish(self, vector: Vector, text: EncodedText) -> bytes:
        if self.about.ranks:
            return vector.tobytes()
        return normalized(vector[: text.n_dimensions or None], text.norm).tobytes()


def normalized(vector: Vector, norm: int) -> Vector:
    """Return the vector divided by its `norm`-norm: 2 is the Euclidean one, p the p-th root of the sum of
    p-th powers.

    As in llama-server, 0 scales the largest number to 32,760, and -1 changes nothing.
    """
    if norm < 0:
        return vector
    sizes = np.abs(vector.astype(np.float64))
    if norm == 0:
        length = sizes.max() / 32760
    elif norm == L2:
        length = np.sqrt((sizes**2).sum())
    else:
        length = (sizes**norm).sum() ** (1 / norm)
    return np.asarray(vector / length if length > 0 else vector, np.float32)


class _EncoderBatch(NativeBatch):
    def __init__(self, n_batch: int) -> None:
        super().__init__(n_batch, with_tokens=True)
        self._wanted[:] = 1

    def check(self, texts: Sequence[Sequence[int]], n_vocab: int, n_ctx: int) -> None:
        """Raise ValueError unless texts and tokens are within the batch's limits."""
        if not 0 < len(texts) <= MAX_SEQUENCES or not all(0 < len(text) <= n_ctx for text in texts):
            raise ValueError(f"a batch needs 1 to {MAX_SEQUENCES} texts of 1 to {n_ctx} tokens each")
        if sum(map(len, texts)) > len(self._token):
            raise ValueError(f"a batch has at most {len(self._token)} tokens")
        if min(map(min, texts)) < 0 or max(map(max, texts)) >= n_vocab:
            raise ValueError(f"a batch needs tokens in 0 ≤ id < {n_vocab}")

    def fill(self, texts: Sequence[Sequence[int]], first: int = 0) -> None:
        """Fill the batch; each text is a separate sequence. first: the position of a text's first token."""
        at = 0
        for number, text in enumerate(texts):
            end = at + len(text)
            self._token[at:end] = text
            self._position[at:end] = np.arange(first, first + len(text))
            self._slot[at:end] = number
            at = end
        self.native.n_tokens = at
