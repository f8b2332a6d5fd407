"""MTP heads: parts of a model that predict further tokens (multi-token prediction, "nextn" in llama.cpp).

A head is one additional layer. For the token at position p it reads the hidden state after the token at p -
1, predicts the token at p + 1, and returns a hidden state from which it can continue. It has a KV cache with
the same slots as the target's.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.errors import DecodeFatalError, KvCacheFullError, ModelLoadError
from shared.heads.mtp_batch import MtpBatch
from shared.heads.mtp_span import MtpOutput, MtpSpan
from shared.llama import library
from shared.llama.gguf_metadata import tensor_names
from shared.llama.memory_size import graph_bytes, read_sizes
from shared.llama.model import Model
from shared.llama.native import llama_cpp, llama_cpp_ext
from shared.llama.native_parameters import context_parameters
from shared.model_files.file_kind import parts_of, read_beginning

_HEAD_TENSOR = ".nextn.eh_proj.weight"
_FIRST_LAYER = "blk.0.attn_norm.weight"
_ARCHITECTURES = frozenset(
    {
        *("bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "glm-dsa", "glm4moe", "hy_v3", "mimo2"),
        *("nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next"),
    }
)
"""Models with a single head that keeps its own cache. With several heads, as in step35, each must read the
draft again. gemma4's head is a separate file, which reads the target's cache.
"""
_FEW_TOKENS = 16
"""If there are at most this many tokens, one pass computes outputs of all of them, which is cheaper than two
passes.
"""


def has_heads(path: Path) -> bool:
    """Return whether a model file has usable heads.

    Checks the tensors, because some files only mention heads in their metadata.
    """
    if read_beginning(path).get("general.architecture") not in _ARCHITECTURES:
        return False
    names = {name for part in parts_of(path) for name in tensor_names(part)}
    return sum(name.endswith(_HEAD_TENSOR) for name in names) == 1


def is_heads_file(path: Path) -> bool:
    """Return whether a file has usable heads but no complete model (mtp-*.gguf)."""
    return has_heads(path) and _FIRST_LAYER not in tensor_names(parts_of(path)[0])


def open_heads(target: Model, path: Path | None = None) -> "MtpHeads":
    """Open the heads of `target`, with a cache for as many slots and tokens; raises ModelLoadError.

    path: the file of the heads; None: the target has loaded them. The heads read the target's `NextnStates`.
    """
    if path is None:
        return MtpHeads(target.native.model, target)
    return MtpHeads(_load_heads(path, target), target, owns_model=True)


def _load_heads(path: Path, target: Model) -> Any:
    """Return a llama_model; raises ModelLoadError if it does not fit."""
    parameters = target.model_parameters()
    parameters.load_mtp = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
    if model and _shape(model) == _shape(target.native.model):
        return model
    if model:
        llama_cpp.llama_model_free(model)
    raise ModelLoadError(f"{path} does not have the MTP heads of {target.vocabulary.info.name}")


class MtpHeads:
    """A context that runs the head of a target."""

    context_type = llama_cpp.LLAMA_CONTEXT_TYPE_MTP
    reads_first = True
    """True if the head reads the first token of a text, for which there is no hidden state."""
    source = "mtp"
    """The head's name as a source of drafts."""
    title = "the model's own heads (MTP)"

    def __init__(self, model: Any, target: Model, *, owns_model: bool = False) -> None:
        """model: a llama_model with the head; if it is owned, `close` frees it. Raises ModelLoadError."""
        self._model = model if owns_model else None
        self.weights_size: int = llama_cpp.llama_model_size(model) if owns_model else 0
        """The size of the weights in bytes; 0 if they are part of the target."""
        parameters = context_parameters(target.plan.options, target.n_ctx, target.n_slots)
        parameters.ctx_type = self.context_type
        parameters.ctx_other = target.native.context
        parameters.n_rs_seq = 0
        parameters.kv_unified = True
        parameters.swa_full = True
        with library.captured_log() as lines:
            self._context = llama_cpp.llama_init_from_model(model, parameters)
        if not self._context:
            raise ModelLoadError(
                f"not enough memory for {self.title}. Use --mtp off, or remove --draft-model"
            )
        self.memory_size = read_sizes(lines).with_graphs(graph_bytes(self._context, parameters))
        llama_cpp_ext.llama_set_embeddings_nextn(self._context, True, True)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self.n_batch: int = llama_cpp.llama_n_batch(self._context)
        self.n_embd: int = llama_cpp.llama_model_n_embd_out(model)
        self.n_vocab: int = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self._batch = MtpBatch(self.n_batch, self.n_embd)

    def decode(self, spans: Sequence[MtpSpan]) -> list[MtpOutput]:
        """Decode all spans in one pass; arrays are views that the next call overwrites.

        Raises KvCacheFullError, DecodeFatalError.
        """
        if sum(len(span.tokens) for span in spans) > _FEW_TOKENS:
            spans = self._decode_all_but_last(spans)
        last = self._decode(spans, with_outputs=True)
        return [
            MtpOutput(
                _view(llama_cpp.llama_get_logits_ith(self._context, i), self.n_vocab),
                _view(llama_cpp_ext.llama_get_embeddings_nextn_ith(self._context, i), self.n_embd),
            )
            for i in last
        ]

    def _decode_all_but_last(self, spans: Sequence[MtpSpan]) -> list[MtpSpan]:
        """Decode all tokens except the last of each span; return the spans of the last tokens."""
        beginnings = [
            MtpSpan(span.slot, span.start, span.tokens[:-1], span.states[:-1])
            for span in spans
            if len(span.tokens) > 1
        ]
        self._decode(beginnings, with_outputs=False)
        return [
            MtpSpan(span.slot, span.start + len(span.tokens) - 1, span.tokens[-1:], span.states[-1:])
            for span in spans
        ]

    def _decode(self, spans: Sequence[MtpSpan], *, with_outputs: bool) -> list[int]:
        """Decode the spans; return the index of the last token of each span.

        Either all tokens have outputs, or none. llama.cpp reads back the first n_outputs hidden states: in
        some of its graphs they belong to the outputs, in others to the first tokens.
        """
        last = self._batch.fill(spans, with_outputs=with_outputs)
        code = llama_cpp.llama_decode(self._context, self._batch.native)
        if code == 1:
            raise KvCacheFullError("no room in the KV cache of the model's heads")
        if code != 0:
            raise DecodeFatalError(f"llama_decode of the model's heads failed with {code}")
        return last

    def trim(self, slot: int, first: int) -> None:
        """Remove the tokens from position `first` on."""
        if not llama_cpp.llama_memory_seq_rm(self._memory, slot, first, -1):
            raise DecodeFatalError("the cache of the model's heads cannot be cut back")

    def close(self) -> None:
        """Free the context; this object must not be used afterwards."""
        llama_cpp.llama_free(self._context)
        if self._model:
            llama_cpp.llama_model_free(self._model)


def _shape(model: Any) -> tuple[int, int]:
    """Return the properties that a model and its heads must share: `n_embd` and number of tokens."""
    n_tokens = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    return llama_cpp.llama_model_n_embd_out(model), n_tokens


def _view(pointer: Any, n: int) -> NDArray[np.float32]:
    return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), shape=(n,))
