"""Chooses the use of a model's memory: the numbers of cells and states.

Refuses settings that llama.cpp computes wrongly.
"""

from pathlib import Path

from shared.errors import ModelLoadError
from shared.free_memory import MEMORY_SHARE
from shared.llama.memory_plan import ContextNeeds
from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.memory.model_outline import MemoryProbe
from shared.model_files.file_kind import read_beginning
from shared.settings.model_options import DEFAULT_CTX, MAX_SLOTS, ModelOptions

_ONE_SLOT_ONLY = frozenset({"plamo2"})
_ROLLBACKS = (8, 6, 4, 3, 2, 1)
"""The numbers of states per slot to keep for rollback; the first number that fits is used. Drafts are cut to
it.
"""
_WINDOW_ROLLBACK = 64
"""The rollback of a memory with windows, longer than any draft. It ends with the next decode, which gives
away cells that the last decode moved out of the window.
"""


def refuse_several_slots(path: Path, n_slots: int) -> None:
    """Raise ModelLoadError if several slots are requested for a model with which llama.cpp then computes
    wrong logits, or aborts.
    """
    architecture = read_beginning(path).get("general.architecture")
    if architecture in _ONE_SLOT_ONLY and n_slots > 1:
        raise ModelLoadError(
            f"{path} cannot be used with {n_slots} slots: llama.cpp computes several sequences of "
            f"{architecture} models incorrectly. Use --parallel 1 (and --n-branches 0 for a back)"
        )


def refuse_unguarded_slots(path: Path, context: ContextNeeds) -> None:
    """Raise ModelLoadError if there are too many slots for each to have a second sequence (`WindowGuard`)."""
    n_max, n_slots = MAX_SLOTS // 2, context.n_slots
    if context.is_guarded and n_slots > n_max:
        raise ModelLoadError(
            f"{path}: a model with a sliding window can have at most {n_max} slots in one KV "
            f"cache, not {n_slots}. Lower --parallel, or use --no-kv-unified"
        )


def without_unsafe_pool(options: ModelOptions, probe: MemoryProbe) -> ModelOptions:
    """Return the options; for recurrent models with windows, with separate cells per slot.

    In one pool, llama.cpp would silently reuse cells that are still in a window.
    """
    is_wrong = probe.is_recurrent and probe.n_window > 0
    return options.model_copy(update={"kv_unified": False}) if is_wrong else options


def choose_n_ctx(options: ModelOptions, n_ctx_train: int) -> int:
    """Return the number of cells in the KV cache: `ctx_size`, or a default for 0."""
    return options.ctx_size or min(n_ctx_train * options.parallel, DEFAULT_CTX)


def choose_traits(
    probe: MemoryProbe, options: ModelOptions, n_slots: int, free_bytes: int, n_step_checkpoints: int = 0
) -> MemoryTraits:
    """Return the traits with which to use a model's memory, if `free_bytes` are free besides its weights.

    n_step_checkpoints: keep at most this many states of each slot instead of using rollback; 0: prefer
    rollback.
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
    """Return how many times `state_bytes`, the bytes of one state of each slot, fit into the free memory."""
    return max(0, int(MEMORY_SHARE * free_bytes)) // max(1, state_bytes)
