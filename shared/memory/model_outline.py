"""Measures the memory of a model without its weights.

llama.cpp can make a model and contexts with all their buffers but without their memory (`no_alloc` in
llama.h), in a few milliseconds. It reports the sizes of the buffers only in its log, and not all of them
(`graph_bytes`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shared.llama import library
from shared.llama.memory_size import MemorySize, graph_bytes, read_sizes
from shared.llama.native import llama_cpp
from shared.llama.native_parameters import context_parameters, model_parameters
from shared.llama.vocabulary import load_native, metadata
from shared.settings.model_options import MAX_SLOTS, ModelOptions

_N_CELLS = 1 << 20
"""The number of cells of a measured context. Sizes are logged to 0.01 MiB: with so many cells, that is a
hundredth of a byte for each token.
"""


@dataclass(frozen=True, slots=True)
class MemoryProbe:
    """The bytes of a token in full attention and in sliding windows, and the bytes of a recurrent state.

    n_window: the number of tokens in a window; 0: there are no windows.
    """

    is_recurrent: bool
    can_roll_back: bool
    n_window: int
    full_token_bytes: int
    window_token_bytes: int
    state_bytes: int

    @property
    def checkpoint_bytes(self) -> int:
        """The bytes of a checkpoint of one slot: its recurrent state and its window."""
        return self.state_bytes + self.n_window * self.window_token_bytes


class ModelOutline:
    """A model without weights, whose contexts can be measured."""

    def __init__(self, model: Any, options: ModelOptions) -> None:
        """`model` is a llama_model pointer, loaded with `no_alloc`."""
        self._model = model
        self._options = options
        self.n_ctx_train: int = llama_cpp.llama_model_n_ctx_train(model)

        self.is_recurrent = bool(
            llama_cpp.llama_model_is_recurrent(model) or llama_cpp.llama_model_is_hybrid(model)
        )
        self.n_layers = self._metadata("block_count")
        """The number of all layers, including MTP heads, without the output."""
        self.n_heads = self._metadata("nextn_predict_layers")
        self.used_experts = self._metadata("expert_used_count") / (self._metadata("expert_count") or 1)
        """The share of a mixture's experts that compute a token."""

    def _metadata(self, key: str) -> int:
        architecture = metadata(self._model, "general.architecture")
        return int(metadata(self._model, f"{architecture}.{key}") or 0)

    @classmethod
    @contextmanager
    def load(cls, path: Path, options: ModelOptions, *, with_heads: bool = False) -> Iterator["ModelOutline"]:
        """Load an outline with layers on the devices in `options`; raises ModelLoadError."""
        library.start()
        parameters = model_parameters(options)
        parameters.no_alloc = True
        parameters.load_mtp = with_heads
        parameters.load_mode = llama_cpp.llama_load_mode_from_str(b"none")
        model = load_native(path, parameters)
        try:
            yield cls(model, options)
        finally:
            llama_cpp.llama_model_free(model)

    def probe(self) -> MemoryProbe:
        """Measure a context with very many tokens and sequences."""
        model = self._model
        parameters = context_parameters(self._options, _N_CELLS, MAX_SLOTS)
        parameters.kv_unified = parameters.swa_full = True
        parameters.n_batch = parameters.n_ubatch = MAX_SLOTS
        parameters.n_rs_seq = 1
        with self._context(parameters) as (context, size):
            n_rollback = llama_cpp.llama_n_rs_seq(context) if context else 0
        return MemoryProbe(
            is_recurrent=self.is_recurrent,
            can_roll_back=n_rollback > 0,
            n_window=llama_cpp.llama_model_n_swa(model),
            full_token_bytes=round(size.full_attention / _N_CELLS),
            window_token_bytes=round(size.windows / _N_CELLS),
            state_bytes=round(size.states / max(1, size.n_states)),
        )

    def texts_size(self, parameters: Any) -> MemorySize:
        """Return the size of a context's caches alone; nothing else is allocated to measure it."""
        with self._context(parameters) as (_, size):
            return replace(size, computing=0)

    def size(self, parameters: Any) -> MemorySize:
        """Return the size of a context with these llama_context_params."""
        with self._context(parameters) as (context, size):
            # A GPU computes large batches whether it holds the weights or not.
            on_cpu = context and self._options.n_gpu_layers == 0
            return size.with_graphs(graph_bytes(context, parameters)) if on_cpu else size

    @contextmanager
    def _context(self, parameters: Any) -> Iterator[tuple[Any, MemorySize]]:
        """Return a llama_context and its size; None if there is no memory for it. Loading the model in full
        then explains why.
        """
        with library.explained_errors():
            with library.captured_log() as lines:
                context = llama_cpp.llama_init_from_model(self._model, parameters)
            try:
                yield context, read_sizes(lines) if context else MemorySize()
            finally:
                if context:
                    llama_cpp.llama_free(context)
