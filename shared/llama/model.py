"""A loaded model with its KV cache: the one thing that computes.

`decode` takes spans of several sequences at once and gives their logits; `trim` takes tokens back out of
the cache, `copy` shares them between sequences. Not thread-safe: one owner.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from shared.errors import DecodeAbortedError, DecodeFatalError, KvCacheFullError, ModelLoadError
from shared.llama import library
from shared.llama.span import Span, fillers
from shared.llama.vocabulary import Vocabulary, load_native, unusable
from shared.llama.window_guard import WindowGuard
from shared.settings.model_options import DEFAULT_CTX, MAX_SLOTS, UNQUANTIZED, CacheType, ModelOptions

_GGML_TYPE_BF16 = 30
"""ggml.h; llama_cpp has no name for it."""


class Model:
    """Weights, vocabulary and a KV cache of `n_ctx` cells for `n_slots` sequences."""

    def __init__(self, path: Path, options: ModelOptions, n_slots: int | None = None) -> None:
        """`n_slots`: slots of the cache if some share cells by `copy`; None: `options.parallel`.

        Raises ModelLoadError.
        """
        library.start()
        self.n_slots = options.parallel if n_slots is None else n_slots
        self._model = load_native(path, _model_parameters(options))
        self.vocabulary = Vocabulary(self._model, path)
        n_ctx = choose_n_ctx(options, self.vocabulary.info.n_ctx_train)
        self.kv_unified = options.kv_unified
        # Recurrent and hybrid models keep a state that cannot be taken back by single tokens.
        self.can_trim = not (
            llama_cpp.llama_model_is_recurrent(self._model) or llama_cpp.llama_model_is_hybrid(self._model)
        )
        n_window: int = llama_cpp.llama_model_n_swa(self._model) if self.can_trim else 0
        is_guarded = n_window > 0 and options.kv_unified and self.n_slots > 1
        parameters = _context_parameters(options, n_ctx, self.n_slots)
        if is_guarded:
            _add_guards(parameters, path)
        self._context = llama_cpp.llama_init_from_model(self._model, parameters)
        if not self._context:
            llama_cpp.llama_model_free(self._model)
            raise ModelLoadError(_why_no_context(path, options))
        self._memory = llama_cpp.llama_get_memory(self._context)
        if not self._memory:  # an embedding model, such as BERT
            self.close()
            raise unusable(path, f"{self.vocabulary.info.architecture} models keep no KV cache")
        self._guard = WindowGuard(self._memory, self.n_slots, n_window) if is_guarded else None
        self.n_vocab = self.vocabulary.n_tokens
        self.n_ctx: int = llama_cpp.llama_n_ctx(self._context)
        self.n_ctx_slot: int = llama_cpp.llama_n_ctx_seq(self._context)
        """The most cells one slot may have: all, if they are one pool."""
        self.n_batch: int = llama_cpp.llama_n_batch(self._context)
        self.pads_single_tokens = False
        """Decode a lone token beside a second one that is thrown away (see `shared.llama.exactness`)."""
        self._batch = _Batch(self.n_batch)

    def decode(self, spans: Sequence[Span]) -> list[NDArray[np.float32]]:
        """One forward pass over all `spans`, at most n_batch tokens together.

        Returns logits for each span, shape (n_logits, n_vocab): views that the next decode overwrites.
        Raises KvCacheFullError (nothing changed), DecodeAbortedError, DecodeFatalError.
        """
        if self.pads_single_tokens and len(spans) == 1 and len(spans[0].tokens) == 1:
            return self._decode_padded(spans[0])
        if not self.kv_unified and len(spans) > 1 and self.can_trim:
            return self._decode_filled(spans)
        return self._decode(spans, [0] * len(spans))

    def _decode(self, spans: Sequence[Span], n_fillers: Sequence[int]) -> list[NDArray[np.float32]]:
        n_tokens = self._batch.fill(spans, n_fillers, self.n_vocab, self.n_slots)
        code = llama_cpp.llama_decode(self._context, self._batch.native)
        if code != 0:
            raise _decode_error(code, n_tokens)
        if self._guard:
            for span, n_filler in zip(spans, n_fillers, strict=True):
                self._guard.grown(span.slot, span.start + len(span.tokens) + n_filler)
        n_outputs = sum(span.n_logits for span in spans)
        if n_outputs == 0:
            return [np.empty((0, self.n_vocab), np.float32)] * len(spans)
        return self._rows(spans, n_outputs)

    def _decode_padded(self, span: Span) -> list[NDArray[np.float32]]:
        """One token and its double behind it, which no logits of the first can see."""
        padded = Span(span.slot, span.start, [*span.tokens, *span.tokens], 2)
        (rows,) = self._decode([padded], [0])
        self.trim(span.slot, span.start + 1)
        return [rows[: span.n_logits]]

    def _decode_filled(self, spans: Sequence[Span]) -> list[NDArray[np.float32]]:
        # llama.cpp begins another pass where a slot's number is not one more than the last.
        ordered = sorted(spans, key=lambda span: span.slot)
        n_fillers = fillers(ordered, self.n_batch, self.n_ctx_slot)
        rows = self._decode(ordered, n_fillers)
        for span, n in zip(ordered, n_fillers, strict=True):
            if n:
                self.trim(span.slot, span.start + len(span.tokens))
        by_slot = {span.slot: logits for span, logits in zip(ordered, rows, strict=True)}
        return [by_slot[span.slot] for span in spans]

    def trim(self, slot: int, n_keep: int) -> None:
        """Keep the first `n_keep` tokens of a slot in the cache."""
        if not 0 <= slot < self.n_slots:
            raise ValueError(f"slot {slot} of {self.n_slots}")
        done = llama_cpp.llama_memory_seq_rm(self._memory, slot, n_keep, -1)
        if not done:  # "returns false if a partial sequence cannot be removed" (llama.h)
            raise DecodeFatalError(f"this model's memory cannot be cut back to {n_keep} tokens")
        if self._guard:
            self._guard.trimmed(slot, n_keep)

    def copy(self, source_slot: int, slot: int, n_keep: int) -> None:
        """Give `slot`, which must be empty, the first `n_keep` tokens of another.

        They take no room: in a unified cache both slots own the same cells, until neither does.
        """
        if not (0 <= source_slot < self.n_slots and 0 <= slot < self.n_slots) or source_slot == slot:
            raise ValueError(f"no copy from slot {source_slot} to slot {slot} of {self.n_slots}")
        assert llama_cpp.llama_memory_seq_pos_max(self._memory, slot) < 0, f"slot {slot} is not empty"
        llama_cpp.llama_memory_seq_cp(self._memory, source_slot, slot, 0, n_keep)
        if self._guard:
            self._guard.grown(slot, n_keep)

    def close(self) -> None:
        """Free everything native; the object must not be used afterwards."""
        llama_cpp.llama_free(self._context)
        llama_cpp.llama_model_free(self._model)

    def _rows(self, spans: Sequence[Span], n_outputs: int) -> list[NDArray[np.float32]]:
        # llama.h: one row for each token with llama_batch.logits[i] != 0, contiguous, in the batch's order
        pointer = ctypes.cast(llama_cpp.llama_get_logits(self._context), ctypes.POINTER(ctypes.c_float))
        table = np.ctypeslib.as_array(pointer, shape=(n_outputs, self.n_vocab))
        rows, row = [], 0
        for span in spans:
            rows.append(table[row : row + span.n_logits])
            row += span.n_logits
        return rows


def choose_n_ctx(options: ModelOptions, n_ctx_train: int) -> int:
    """The number of cells of the cache: `ctx_size`, or a default for 0."""
    return options.ctx_size or min(n_ctx_train * options.parallel, DEFAULT_CTX)


class _Batch:
    """A llama_batch over numpy arrays: filling it by ctypes would cost more than sampling."""

    def __init__(self, n_batch: int) -> None:
        self._token = np.zeros(n_batch, np.int32)
        self._position = np.zeros(n_batch, np.int32)
        self._n_slots = np.ones(n_batch, np.int32)  # each token belongs to one sequence
        self._slot = np.zeros(n_batch, np.int32)
        addresses = self._slot.ctypes.data + self._slot.itemsize * np.arange(n_batch, dtype=np.uintp)
        self._slot_pointers = addresses.astype(np.uintp)
        self._wanted = np.zeros(n_batch, np.int8)
        self.native = llama_cpp.llama_batch(
            n_tokens=0,
            token=_pointer(self._token, ctypes.c_int32),
            embd=None,
            pos=_pointer(self._position, ctypes.c_int32),
            n_seq_id=_pointer(self._n_slots, ctypes.c_int32),
            seq_id=_pointer(self._slot_pointers, ctypes.POINTER(ctypes.c_int32)),
            logits=_pointer(self._wanted, ctypes.c_int8),
        )

    def fill(self, spans: Sequence[Span], n_fillers: Sequence[int], n_vocab: int, n_slots: int) -> int:
        """Write `spans` into the arrays, so many tokens without meaning behind each.

        Returns the number of tokens. Raises ValueError for bad ones.
        """
        at = 0
        for span, n_filler in zip(spans, n_fillers, strict=True):
            end = at + len(span.tokens)
            if end > len(self._token) or not 0 <= span.slot < n_slots or not span.tokens or span.start < 0:
                raise ValueError(f"not a batch of at most {len(self._token)} tokens: {span}")
            self._token[at:end] = span.tokens
            self._position[at:end] = np.arange(span.start, span.start + end - at)
            self._slot[at:end] = span.slot
            self._wanted[at:end] = 0
            self._wanted[end - span.n_logits : end] = 1
            at = end
            if n_filler:
                at = end + n_filler
                self._token[end:at] = span.tokens[-1]
                self._position[end:at] = span.start + len(span.tokens) + np.arange(n_filler)
                self._slot[end:at] = span.slot
                self._wanted[end:at] = 0
        tokens = self._token[:at]
        if at == 0 or int(tokens.min()) < 0 or int(tokens.max()) >= n_vocab:
            raise ValueError(f"a batch needs tokens in 0 ≤ id < {n_vocab}")
        self.native.n_tokens = at
        return at


def _pointer(array: NDArray[Any], kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))


def _decode_error(code: int, n_tokens: int) -> Exception:
    if code == 1:
        return KvCacheFullError(f"no room in the KV cache for a batch of {n_tokens} tokens")
    if code == 2:  # noqa: PLR2004 - llama.h: "2 - aborted"
        return DecodeAbortedError(f"llama_decode was aborted in a batch of {n_tokens} tokens")
    return DecodeFatalError(f"llama_decode failed with {code} on a batch of {n_tokens} tokens")


def _why_no_context(path: Path, options: ModelOptions) -> str:
    reason = f"{path}: no memory for a context of {options.ctx_size} tokens: try a smaller --ctx-size"
    types = {options.cache_type_k, options.cache_type_v}
    if types <= UNQUANTIZED:
        return reason
    return f"{reason}; or its attention heads do not divide into blocks of {' and '.join(sorted(types))}"


def _model_parameters(options: ModelOptions) -> Any:
    parameters = llama_cpp.llama_model_default_params()
    parameters.n_gpu_layers = options.n_gpu_layers
    parameters.load_mode = llama_cpp.llama_load_mode_from_str(options.load_mode.encode())
    parameters.split_mode = getattr(llama_cpp, f"LLAMA_SPLIT_MODE_{options.split_mode.upper()}")
    parameters.main_gpu = options.main_gpu
    if options.tensor_split:
        n_devices = llama_cpp.llama_max_devices()
        # ctypes keeps the array for as long as the parameters
        parameters.tensor_split = (ctypes.c_float * n_devices)(*options.tensor_split[:n_devices])
    return parameters


def _context_parameters(options: ModelOptions, n_ctx: int, n_slots: int) -> Any:
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = n_ctx
    parameters.n_batch = max(options.batch_size, n_slots)  # a token of each slot
    parameters.n_ubatch = min(parameters.n_batch, options.ubatch_size)
    parameters.n_seq_max = n_slots
    parameters.n_threads = options.threads
    parameters.n_threads_batch = options.threads_batch if options.threads_batch > 0 else options.threads
    parameters.kv_unified = options.kv_unified
    parameters.swa_full = True  # a sliding-window cache that drops cells cannot take drafts back
    parameters.type_k = _ggml_type(options.cache_type_k)
    parameters.type_v = _ggml_type(options.cache_type_v)
    parameters.offload_kqv = options.kv_offload
    parameters.flash_attn_type = _flash_attention(options)
    parameters.no_perf = True
    return parameters


def _add_guards(parameters: Any, path: Path) -> None:
    """Make room for a `WindowGuard`, and decode in one ubatch. Raises ModelLoadError."""
    n_slots, n_most = parameters.n_seq_max, MAX_SLOTS // 2
    if n_slots > n_most:
        raise ModelLoadError(
            f"{path}: a model with a sliding window has at most {n_most} slots in one KV cache, not "
            f"{n_slots}: lower --parallel, or use --no-kv-unified"
        )
    parameters.n_seq_max = 2 * n_slots
    parameters.n_ubatch = max(parameters.n_ubatch, n_slots)
    parameters.n_batch = parameters.n_ubatch


def _ggml_type(name: CacheType) -> int:
    return _GGML_TYPE_BF16 if name == "bf16" else int(getattr(llama_cpp, f"GGML_TYPE_{name.upper()}"))


def _flash_attention(options: ModelOptions) -> int:
    if options.flash_attn == "on" or options.cache_type_v not in UNQUANTIZED:
        return int(llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED)
    on_cpu = options.n_gpu_layers == 0 or not llama_cpp.llama_supports_gpu_offload()
    if options.flash_attn == "off" or on_cpu:
        # On CPUs it sums in half precision, in ways that depend on the batch's width, on the threads and on
        # how full the cache is, so a text would depend on who else asks; and it is the slower way as soon
        # as a step has several tokens (docs/performance.md).
        return int(llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED)
    return int(llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO)
