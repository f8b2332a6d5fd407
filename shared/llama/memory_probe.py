"""What the memory of a model can do, and how large it is: measured, because llama.cpp does not say.

An attention cache holds something of each token, a recurrent state is one sum of all. For some architectures
llama.cpp keeps the states after the last tokens of a decode (`n_rs_seq` in llama.h); for all, a state can be
kept in another sequence.
"""

from dataclasses import dataclass
from typing import Any

import llama_cpp

from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.llama.native_parameters import context_parameters
from shared.settings.model_options import MAX_SLOTS, ModelOptions

_ROLLBACKS = (8, 6, 4, 3, 2, 1)
"""How many states to keep per slot for rollback: the first that fits. Drafts are cut to this."""
_WINDOW_ROLLBACK = 64
"""More than any draft: cells that the last decode moved out of the window are given away in the next one."""
_CELLS_PADDING = 256
"""llama.cpp pads the number of cells to a multiple of this."""
_MEMORY_SHARE = 0.25
"""The most of the free memory that states to return to may take."""


@dataclass(frozen=True, slots=True)
class MemoryProbe:
    """Sizes in bytes: of a token in full attention and in sliding windows, and of a recurrent state.

    n_window: tokens that see each other in a window; 0: there are no windows.
    """

    is_recurrent: bool
    can_roll_back: bool
    n_window: int
    full_token_bytes: int
    window_token_bytes: int
    state_bytes: int

    @property
    def checkpoint_bytes(self) -> int:
        """Of a checkpoint of one slot: its recurrent state and its window."""
        return self.state_bytes + self.n_window * self.window_token_bytes


def probe_memory(model: Any, options: ModelOptions) -> MemoryProbe:
    """Probe `model`, a llama_model pointer, by decoding two tokens in a small context."""
    is_recurrent = bool(llama_cpp.llama_model_is_recurrent(model) or llama_cpp.llama_model_is_hybrid(model))
    n_window: int = llama_cpp.llama_model_n_swa(model)
    parameters = context_parameters(options, n_ctx=32, n_slots=1)
    parameters.n_batch = parameters.n_ubatch = 32
    parameters.n_rs_seq = 1
    context = llama_cpp.llama_init_from_model(model, parameters)
    if not context:  # loading it in full will say why
        return MemoryProbe(is_recurrent, False, n_window, 0, 0, 0)
    try:
        (all_1, part_1), (all_2, part_2) = _decode_and_measure(context), _decode_and_measure(context)
        return MemoryProbe(
            is_recurrent,
            llama_cpp.llama_n_rs_seq(context) > 0,
            n_window,
            full_token_bytes=(all_2 - part_2) - (all_1 - part_1),
            window_token_bytes=part_2 - part_1,
            state_bytes=part_1 - (part_2 - part_1) if is_recurrent else 0,
        )
    finally:
        llama_cpp.llama_free(context)


def choose_traits(
    probe: MemoryProbe, options: ModelOptions, n_slots: int, free_bytes: int, n_step_checkpoints: int = 0
) -> MemoryTraits:
    """How to use the memory of a model, with `free_bytes` of memory free.

    n_step_checkpoints: keep this many states of each slot, or fewer, rather than to roll back; 0: either.
    """
    if not probe.is_recurrent:
        if probe.n_window == 0 or options.swa_full:
            return PLAIN
        return MemoryTraits(n_rollback=_WINDOW_ROLLBACK, checkpoint_bytes=probe.checkpoint_bytes)
    n_fitting = _n_fitting(probe.state_bytes * n_slots, free_bytes)
    n_rollback = 0
    if probe.can_roll_back and not n_step_checkpoints:
        n_rollback = next((n for n in _ROLLBACKS if n <= n_fitting), 0)
    n_checkpoints = 0
    if n_rollback == 0 and options.kv_unified:
        n_checkpoints = min(n_step_checkpoints or 1, MAX_SLOTS // n_slots - 1, max(1, n_fitting))
    return MemoryTraits(
        n_rollback=n_rollback,
        n_step_checkpoints=n_checkpoints,
        equal_lengths=True,
        checkpoint_bytes=probe.checkpoint_bytes,
    )


def _n_fitting(state_bytes: int, free_bytes: int) -> int:
    """How many times `state_bytes`, the states of all slots, may be kept besides the current ones."""
    return int(_MEMORY_SHARE * free_bytes) // max(1, state_bytes)


@dataclass(frozen=True, slots=True)
class MemorySize:
    """What a context takes, in bytes. `n_states`: how many recurrent states there are."""

    full_attention: int
    windows: int
    states: int
    n_states: int

    def __str__(self) -> str:
        """For the log."""
        parts = [f"{self.full_attention / 1e6:.1f} MB for keys and values"]
        if self.windows:
            parts.append(f"{self.windows / 1e6:.1f} MB for those of sliding windows")
        if self.states:
            each = self.states / self.n_states / 1e6
            parts.append(f"{self.states / 1e6:.1f} MB for {self.n_states} recurrent states of {each:.2f} MB")
        return ", ".join(parts)


def memory_size(probe: MemoryProbe, traits: MemoryTraits, parameters: Any) -> MemorySize:
    """The size of the memory of a context with these llama_context_params."""
    n_ctx, n_sequences = _padded(parameters.n_ctx), parameters.n_seq_max
    n_windows = n_ctx
    if not parameters.swa_full:  # llama-kv-cache-iswa.cpp
        n_streams = 1 if parameters.kv_unified else n_sequences
        n_each = probe.n_window * (n_sequences // n_streams) + parameters.n_ubatch
        n_windows = n_streams * min(_padded(n_each), n_ctx // n_streams)
    n_states = n_sequences * (1 + (traits.n_rollback or 0)) if probe.is_recurrent else 0
    return MemorySize(
        n_ctx * probe.full_token_bytes,
        n_windows * probe.window_token_bytes,
        n_states * probe.state_bytes,
        n_states,
    )


def _padded(n_cells: int) -> int:
    return -(-n_cells // _CELLS_PADDING) * _CELLS_PADDING


def _decode_and_measure(context: Any) -> tuple[int, int]:
    """Decode a token; the bytes of the whole state of its sequence, and without full attention."""
    token = (llama_cpp.llama_token * 1)(0)
    llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(token, 1))
    return (
        llama_cpp.llama_state_seq_get_size_ext(context, 0, 0),
        llama_cpp.llama_state_seq_get_size_ext(context, 0, llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY),
    )
