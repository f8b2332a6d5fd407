"""EAGLE-3: a drafter of one layer, in its own file, that reads inputs of three layers of its target.

It drafts like an MTP head (`mtp_heads`): for the token at position p it reads the target's state for p - 1,
and returns a hidden state from which it can continue. The target's states (the inputs of three layers) are
first reduced to the size of the drafter's own by `llama_encode`. A drafter without embeddings or output
matrix uses the target's. A drafter's vocabulary may be a part of the target's (`d2t`); the logits of all
other tokens are -inf.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.errors import DecodeFatalError, ModelLoadError
from shared.heads.hidden_sources import ARCHITECTURES, LayerInputs, target_layers
from shared.heads.mtp_batch import MtpBatch
from shared.heads.mtp_heads import MtpHeads
from shared.heads.mtp_span import MtpOutput, MtpSpan
from shared.llama.gguf_metadata import tensor_names
from shared.llama.model import Model
from shared.llama.native import llama_cpp, llama_cpp_ext
from shared.llama.vocabulary import metadata
from shared.model_files.file_kind import EAGLE

_OWN = {"token_embd.weight", "output.weight"}


def why_no_target(architecture: str) -> str | None:
    """Return why a model of this architecture cannot have an EAGLE-3 drafter; None if it can."""
    if architecture in ARCHITECTURES:
        return None
    return (
        "EAGLE-3 drafters read the inputs of the target's layers. llama.cpp gives these inputs for "
        f"{', '.join(sorted(ARCHITECTURES))}, not for {architecture}"
    )


def open_eagle(target: Model, path: Path) -> tuple["EagleHeads", LayerInputs]:
    """Open the heads, with a cache for as many slots and tokens as the target's; raises ModelLoadError.

    The target then records the states that the heads read.
    """
    if target.batch_sizes:
        raise ModelLoadError(f"{path}: --exact cannot be combined with an EAGLE-3 drafter")
    eagle, layers = _load_eagle(path, target)
    inputs = LayerInputs(target, layers)
    return EagleHeads(eagle, target, len(inputs.nothing)), inputs


def _load_eagle(path: Path, target: Model) -> tuple[Any, list[int]]:
    """Return (llama_model, the layers of the target that it reads). Raises ModelLoadError if it does not fit.

    Everything is checked before llama.cpp computes, because it aborts the process if something does not fit.
    """
    if reason := why_no_target(target.vocabulary.info.architecture):
        raise ModelLoadError(f"{path} cannot draft for this model: {reason}")
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), target.model_parameters())
    if not model:
        raise ModelLoadError(f"{path} cannot be loaded as an EAGLE-3 drafter")
    layers = target_layers(model)
    if reason := _misfit(path, model, layers, target.native.model):
        llama_cpp.llama_model_free(model)
        raise ModelLoadError(f"{path} is not an EAGLE-3 drafter of this model: {reason}")
    return model, layers


def _misfit(path: Path, model: Any, layers: Sequence[int], target: Any) -> str | None:
    n_embd, n_layers, n_vocab = _shape(target)
    n_target = int(metadata(model, f"{EAGLE}.target_hidden_size") or 0)
    if n_target != n_embd:
        return f"it reads states of {n_target} dimensions, but the model has {n_embd}"
    if not all(0 <= layer < n_layers for layer in layers):
        return f"it reads the inputs of layers {layers}, but the model has {n_layers} layers"
    own_embd, _, own_vocab = _shape(model)
    if own_vocab != n_vocab:
        return f"its vocabulary has {own_vocab} tokens, but the model's vocabulary has {n_vocab}"
    missing = _OWN - set(tensor_names(path))
    if missing and own_embd != n_embd:
        return (
            f"it lacks {' and '.join(sorted(missing))}, and the size of its states differs from the model's"
        )
    return None


def _shape(model: Any) -> tuple[int, int, int]:
    """Return (n_embd, number of layers, number of tokens)."""
    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    return llama_cpp.llama_model_n_embd(model), llama_cpp.llama_model_n_layer(model), n_vocab


class EagleHeads(MtpHeads):
    """A context for an EAGLE-3 drafter. The target's states have `n_features` dimensions, and its own states
    have `n_embd`.
    """

    context_type = llama_cpp.LLAMA_CONTEXT_TYPE_DEFAULT
    reads_first = False
    source = "draft_model"
    title = "an EAGLE-3 drafter"

    def __init__(self, model: Any, target: Model, n_features: int) -> None:
        """model: freed by `close`. n_features: the number of values in a state of the target.

        Raises ModelLoadError.
        """
        super().__init__(model, target, owns_model=True)
        self._max_fused: int = llama_cpp.llama_n_ubatch(self._context)
        self._features = MtpBatch(self._max_fused, n_features, with_tokens=False)

    def decode(self, spans: Sequence[MtpSpan]) -> list[MtpOutput]:
        return super().decode([span._replace(states=self._fused(span.states)) for span in spans])

    def _fused(self, states: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        """Return `states` with the target's states reduced to the size of the drafter's own."""
        fused = list(states)
        wide = [i for i, state in enumerate(states) if len(state) != self.n_embd]
        for first in range(0, len(wide), self._max_fused):
            part = wide[first : first + self._max_fused]
            for i, state in zip(part, self._encode([states[i] for i in part]), strict=True):
                fused[i] = state
        return fused

    def _encode(self, states: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Return the reduced states, of shape (len(states), n_embd), as a copy."""
        # The positions mean nothing to it, but llama.cpp wants them to follow those in the cache.
        start = llama_cpp.llama_memory_seq_pos_max(self._memory, 0) + 1
        self._features.fill([MtpSpan(0, start, [0] * len(states), states)], with_outputs=True)
        code = llama_cpp.llama_encode(self._context, self._features.native)
        if code != 0:
            raise DecodeFatalError(f"llama_encode of the EAGLE-3 drafter failed with {code}")
        pointer = ctypes.cast(
            llama_cpp_ext.llama_get_embeddings_nextn(self._context), ctypes.POINTER(ctypes.c_float)
        )
        return np.ctypeslib.as_array(pointer, shape=(len(states), self.n_embd)).copy()
