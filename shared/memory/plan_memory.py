"""Plans the memory of a model before weights are read: see `MemoryPlan`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from shared.free_memory import free_memory
from shared.llama import devices
from shared.llama.gguf_metadata import tensor_sizes
from shared.llama.memory_plan import ContextNeeds, MemoryPlan
from shared.llama.memory_size import MemorySize
from shared.llama.placement import CPU, EMBEDDINGS, EXPERTS, Device, Placement, group_of
from shared.llama.start_key import state_of_files
from shared.memory.context_choice import (
    choose_n_ctx,
    choose_traits,
    refuse_several_slots,
    refuse_unguarded_slots,
    without_unsafe_pool,
)
from shared.memory.stored_outline import MeasuredOutline, StoredOutline
from shared.memory.texts_kept import size_prompt_cache
from shared.model_files.file_kind import parts_of
from shared.rings import RINGS, adapters
from shared.seams import plugged
from shared.settings.model_options import ModelOptions
from shared.terminal import size_text
from shared.text_store import NO_PROMPT_CACHE

_MAPPED = frozenset({"auto", "mmap"})
"""Values of --load-mode with which weights are in the page cache, which the system counts as free."""
_SURE = 0.75
"""The share of the computed context that a message recommends, because a context that does not fit cannot be
measured in full.
"""
_MIN_CTX = 256
"""The smallest useful context, in tokens."""
_LONG_FACTORS = "rope_factors_long"
"""A part of the names of tensors with the factors for long contexts."""


class Headroom(NamedTuple):
    """The free memory in bytes. handles: pointers to the devices `gpus`; None: llama.cpp chooses
    the devices.
    """

    handles: Sequence[int] | None
    gpus: Sequence[Device]
    host_free: int

    def left_by(self, n_weights: int) -> int:
        """Return the memory left beside `n_weights` bytes of weights: on devices, and also on the host if the
        devices cannot hold all weights.
        """
        n_gpus = sum(device.free for device in self.gpus)
        n_host = 0 if any(device.is_shared for device in self.gpus) else self.host_free
        return n_gpus - n_weights if n_gpus > n_weights else n_gpus + n_host - n_weights


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A model whose layers are to be placed. weights: bytes by tensor. Other fields as in `MemoryPlan`."""

    path: Path
    files: str
    options: ModelOptions
    context: ContextNeeds
    outline: StoredOutline
    weights: Mapping[str, int]
    room: Headroom
    with_heads: bool
    with_workers: bool


def plan_memory(
    path: Path,
    options: ModelOptions,
    n_slots: int | None = None,
    n_step_checkpoints: int = 0,
    n_reserve: int = 0,
    *,
    with_heads: bool = False,
    with_workers: bool = False,
    taken: Mapping[str, int] | None = None,
) -> MemoryPlan:
    """Plan how to load a model; raises ModelLoadError. If it does not fit on devices, the placement says so.

    n_slots: number of sequences, if some of them only share the cells of others; None: `parallel`.
    n_step_checkpoints: the maximum number of states of each slot to keep if the model is recurrent; 0: as
    needed for a target, where only the last draft is removed. n_reserve: cells of each slot in addition to
    `ctx_size`, for padding. taken: bytes that other models will use on each device and the CPU, by name.
    """
    # 1. Refuse what llama.cpp cannot do.
    files = state_of_files(path, options)
    n_slots = options.parallel if n_slots is None else n_slots
    refuse_several_slots(path, n_slots)
    if options.lora:
        adapters().check_adapters(options.lora, path)
    # 2. Measure the model without its weights.
    room = _free_room(options, taken or {}, with_workers=with_workers)
    with StoredOutline.open(path, options.on_cpu(), with_heads=with_heads) as outline:
        probe = outline.measured.probe
        used = options if n_step_checkpoints else without_unsafe_pool(options, probe)
        # 3. The memory left by the weights decides how the context is used, and so how large it is.
        weights = _weights(path, used, outline.measured, with_heads=with_heads)
        n_left = room.left_by(sum(weights.values()))
        traits = choose_traits(probe, used, n_slots, n_left, n_step_checkpoints)
        n_ctx = choose_n_ctx(used, outline.measured.n_ctx_train) + n_reserve * n_slots
        context = ContextNeeds(n_ctx, n_slots, traits, used.kv_unified, probe.n_window)
        refuse_unguarded_slots(path, context)
        # 4. Place layers on devices, and give what is left to the prompt cache.
        return _plan(Unplaced(path, files, used, context, outline, weights, room, with_heads, with_workers))


def _plan(model: Unplaced) -> MemoryPlan:
    placement, size = _placed(model)
    if placement and model.options.fit == "on":
        placement = replace(placement, problem=placement.problem or _host_problem(placement, model))
    options = placement.options(model.options) if placement else model.options
    # Mapped weights are in the page cache, which the system counts as free.
    n_host = placement.host_bytes if placement else sum(model.weights.values()) + size.total
    measured, n_left = model.outline.measured, model.room.host_free - n_host
    texts = size_prompt_cache(options, measured.probe, n_left, model.context)
    return MemoryPlan(
        model.path,
        model.files,
        options,
        model.context,
        size,
        NO_PROMPT_CACHE if model.with_workers else texts,  # they would cross the network
        placement,
        _step_bytes(model.weights, measured.used_experts),
        has_long_rope=any(_LONG_FACTORS in name for name in model.weights),
        with_heads=model.with_heads,
        with_workers=model.with_workers,
    )


def _free_room(options: ModelOptions, taken: Mapping[str, int], *, with_workers: bool) -> Headroom:
    handles = None if with_workers and not options.device else devices.chosen(options)
    gpus = [
        replace(device, free=max(0, device.free - taken.get(device.name, 0)))
        for device in devices.describe(handles or [])
    ]
    on_host = [CPU, *(device.name for device in gpus if device.is_shared)]
    return Headroom(handles, gpus, free_memory() - sum(taken.get(name, 0) for name in on_host))


def _placed(model: Unplaced) -> tuple[Placement | None, MemorySize]:
    """Return the placement, and the memory of the context there; None: llama.cpp places layers as
    requested.
    """
    if model.room.handles is not None:
        for ring in plugged(RINGS, "place_layers"):
            placed: tuple[Placement, MemorySize] = ring.place_layers(model)
            return placed
    return None, model.outline.size(model.context.parameters(model.options.on_cpu()))


def _host_problem(placement: Placement, model: Unplaced) -> str:
    """Return why the host's memory cannot hold the data placed there. Empty: it can, or only mapped weights
    exceed it, which are read from the file again.
    """
    n_free, n_ctx = max(0, model.room.host_free), model.context.n_ctx
    n_mapped = placement.host_weights if model.options.load_mode in _MAPPED else 0
    n_weights, n_needed = placement.host_weights - n_mapped, placement.used(CPU) - n_mapped
    if n_needed <= n_free:
        return ""
    n_texts = n_needed - n_weights
    n_fitting = int(_SURE * max(0, n_free - n_weights) * n_ctx / max(1, n_texts))
    n_round = 1 << n_fitting.bit_length() >> 1
    needed = f"weights ({size_text(n_weights)}) and context need" if n_weights else "the context needs"
    return (
        f"{needed} {size_text(n_needed)} of memory with {n_ctx} tokens, but only {size_text(n_free)} are "
        "free: "
        + (f"lower --ctx-size, for instance to {n_round}" if n_round >= _MIN_CTX else "use a smaller model")
        + ". With enough swap, --fit off loads the model anyway"
    )


def _weights(
    path: Path, options: ModelOptions, measured: MeasuredOutline, *, with_heads: bool
) -> dict[str, int]:
    """Return the bytes by tensor, without heads that are not loaded, and with the bytes that `lora` adds."""
    sizes = {name: size for part in parts_of(path) for name, size in tensor_sizes(part).items()}
    n_layers, n_heads = measured.n_layers, 0 if with_heads else measured.n_heads
    heads = tuple(f"blk.{layer}." for layer in range(n_layers - n_heads, n_layers))
    used = {name: size for name, size in sizes.items() if not name.startswith(heads)}
    return used | _adapter_weights(options, used)


def _adapter_weights(options: ModelOptions, weights: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes that `lora` adds to `weights`, each beside its tensor; adapters that do not fit are
    refused later.
    """
    return {
        f"{name} of {adapter.path}": size
        for adapter in options.lora
        for name, size in tensor_sizes(adapter.path).items()
        if name.removesuffix(".lora_a").removesuffix(".lora_b") in weights
    }


def _step_bytes(weights: Mapping[str, int], used_experts: float) -> int:
    """Return the bytes of weights read for one token: a share of the experts, and the embeddings only if they
    are the output, too.
    """
    n_read = 0.0 if "output.weight" in weights else weights.get("token_embd.weight", 0)
    for name, n_bytes in weights.items():
        group = group_of(name)
        n_read += 0 if group == EMBEDDINGS else n_bytes * (used_experts if group == EXPERTS else 1)
    return int(n_read)
