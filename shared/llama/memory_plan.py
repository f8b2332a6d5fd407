"""How a model's memory is used: how many states to keep, which needs further sequences and larger batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from shared.errors import ModelLoadError
from shared.free_memory import MEMORY_SHARE, free_memory
from shared.llama import devices
from shared.llama.gguf_metadata import tensor_sizes
from shared.llama.memory_probe import MemoryProbe, MemorySize, ModelOutline, size_text
from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.llama.native_parameters import context_parameters, make_room
from shared.llama.placement import CPU, EMBEDDINGS, EXPERTS, Device, ModelSizes, Placement, group_of, settle
from shared.llama.stored_outline import MeasuredOutline, StoredOutline
from shared.models.file_kind import parts_of, read_beginning
from shared.prompt_cache import NO_PROMPT_CACHE, PromptCacheSize
from shared.rings import adapters
from shared.settings.model_options import DEFAULT_CTX, MAX_SLOTS, ModelOptions

_ONE_SLOT_ONLY = frozenset({"plamo2"})
_ROLLBACKS = (8, 6, 4, 3, 2, 1)
"""How many states to keep per slot for rollback: the first that fits. Drafts are cut to this."""
_WINDOW_ROLLBACK = 64
"""More than any draft: cells that the last decode moved out of the window are given away in the next one."""
_LONG_FACTORS = "rope_factors_long"
"""In the names of tensors with the factors for long contexts."""
_PART_BYTES = 32 << 20
"""How much of a text is stored or loaded in one step: it takes some hundredths of a second."""


@dataclass(frozen=True, slots=True)
class ContextNeeds:
    """What a context has to hold, wherever its layers are.

    n_window: tokens that see each other in a sliding window; 0: there are none. kv_unified: see
    `ModelOptions`; a recurrent target with windows has cells of its own for each slot, whatever was asked.
    """

    n_ctx: int
    n_slots: int
    traits: MemoryTraits
    kv_unified: bool
    n_window: int

    @property
    def is_guarded(self) -> bool:
        """Whether a `WindowGuard` keeps the cells that leave the window."""
        return self._is_plain_pool and self.n_window > 0

    @property
    def checks_windows(self) -> bool:
        """Whether a slot that was cut back may have lost some cells of its window.

        Of recurrent models llama.cpp does not tell.
        """
        return self.n_window > 0 and not self.traits.can_trim and not self.traits.equal_lengths

    @property
    def has_parts(self) -> bool:
        """Whether texts are stored in parts.

        Ranges of cells have names of their own in one pool only, and where nothing but cells is in memory.
        """
        return self._is_plain_pool and self._n_sequences < MAX_SLOTS

    @property
    def can_store(self) -> bool:
        """With all cells of windows a text can be cut anywhere.

        Of a sequence llama.cpp stores none outside of its last window, but parts are no longer than that.
        """
        return self.has_parts or not (self.traits.can_trim and self.n_window > 0)

    @property
    def _is_plain_pool(self) -> bool:
        return self.traits == PLAIN and self.kv_unified

    @property
    def _n_sequences(self) -> int:
        return self.n_slots * (2 if self.is_guarded else 1 + self.traits.n_step_checkpoints)

    def parameters(self, options: ModelOptions) -> Any:
        """A llama_context_params with room for all sequences and states."""
        parameters, traits = context_parameters(options, self.n_ctx, self.n_slots), self.traits
        make_room(
            parameters,
            self._n_sequences + self.has_parts,
            (traits.n_rollback or 0) if traits.equal_lengths else 0,
            # Between the ubatches of a decode, cells that an earlier one has masked are given away.
            one_ubatch=self.is_guarded or not traits.can_trim,
        )
        return parameters


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a model is loaded with.

    options: as asked for, with a number of layers in VRAM that was chosen. parameters: llama_context_params.
    placement: None if llama.cpp chooses the devices. step_bytes: weights that are read to decode one token.
    has_long_rope: llama.cpp chooses among two tables of rope factors by the length of a sequence's context
    (LongRoPE).
    """

    options: ModelOptions
    context: ContextNeeds
    parameters: Any
    size: MemorySize
    prompt_cache: PromptCacheSize
    placement: Placement | None
    step_bytes: int
    has_long_rope: bool


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
    """For a `Model` with these arguments; raises ModelLoadError.

    What does not fit into VRAM is no error here, but said by the placement. taken: bytes that others will
    take, by device or CPU.
    """
    n_slots = options.parallel if n_slots is None else n_slots
    _refuse_several_slots(path, n_slots)
    if options.lora:
        adapters().check_adapters(options.lora, path)
    room = _free_room(options, taken or {}, with_workers=with_workers)
    with StoredOutline.open(path, on_cpu(options), with_heads=with_heads) as outline:
        measured, probe = outline.measured, outline.measured.probe
        used = options if n_step_checkpoints else _without_a_wrong_pool(options, probe)
        weights = _weights(path, used, measured, with_heads=with_heads)
        n_weights = sum(weights.values())
        traits = choose_traits(probe, used, n_slots, room.left_by(n_weights), n_step_checkpoints)
        n_ctx = choose_n_ctx(used, measured.n_ctx_train) + n_reserve * n_slots
        context = ContextNeeds(n_ctx, n_slots, traits, used.kv_unified, probe.n_window)
        _refuse_unguarded_slots(path, context)
        placement, size = _place(
            path, outline, used, context, weights=weights, room=room, with_heads=with_heads
        )
    # Mapped weights are in the page cache, which the system counts as free.
    n_left = room.host_free - (placement.host_bytes if placement else n_weights + size.total)
    used = placement.options(used) if placement else used
    return MemoryPlan(
        used,
        context,
        context.parameters(used),
        size,
        size_prompt_cache(used, probe, n_left, context),
        placement,
        _step_bytes(weights, measured.used_experts),
        has_long_rope=any(_LONG_FACTORS in name for name in weights),
    )


class _Headroom(NamedTuple):
    """Bytes that are free. handles: of the devices `gpus`; None: llama.cpp chooses among those it finds."""

    handles: Sequence[int] | None
    gpus: Sequence[Device]
    host_free: int

    def left_by(self, n_weights: int) -> int:
        """What weights leave of the devices; of these and the host if they are on both."""
        n_gpus = sum(device.free for device in self.gpus)
        n_host = 0 if any(device.is_shared for device in self.gpus) else self.host_free
        return n_gpus - n_weights if n_gpus > n_weights else n_gpus + n_host - n_weights


def _free_room(options: ModelOptions, taken: Mapping[str, int], *, with_workers: bool) -> _Headroom:
    handles = None if with_workers and not options.device else devices.chosen(options)
    gpus = [
        replace(device, free=max(0, device.free - taken.get(device.name, 0)))
        for device in devices.describe(handles or [])
    ]
    on_host = [CPU, *(device.name for device in gpus if device.is_shared)]
    return _Headroom(handles, gpus, free_memory() - sum(taken.get(name, 0) for name in on_host))


def _place(
    path: Path,
    outline: StoredOutline,
    options: ModelOptions,
    context: ContextNeeds,
    *,
    weights: Mapping[str, int],
    room: _Headroom,
    with_heads: bool,
) -> tuple[Placement | None, MemorySize]:
    """What goes where, and what it takes there."""
    without_devices = context.parameters(on_cpu(options))
    on_host = outline.texts_size(without_devices) if room.gpus else outline.size(without_devices)
    if room.handles is None:
        return None, on_host
    n_layers, n_heads = outline.measured.n_layers, outline.measured.n_heads
    caches = on_host.caches(n_layers)
    if with_heads:  # they have a context of their own, with a cache and a graph
        caches[-n_heads:] = [max(caches)] * n_heads
    size, names = on_host, devices.buffer_names(room.handles)

    def computing(tried: Placement) -> Mapping[str, int]:
        nonlocal size
        if tried.n_gpu_layers:
            placed = tried.options(options)
            with ModelOutline.load(path, placed, with_heads=with_heads) as other:
                size = other.size(context.parameters(placed))
        elif room.gpus:
            size = outline.size(without_devices)
        return {place: (1 + with_heads) * n_bytes for place, n_bytes in size.computing_by(names).items()}

    placement = settle(ModelSizes(weights, n_layers, caches), room.gpus, options, computing)
    return placement, size


def on_cpu(options: ModelOptions) -> ModelOptions:
    """The same without devices."""
    return options.model_copy(update={"n_gpu_layers": 0})


def _weights(
    path: Path, options: ModelOptions, measured: MeasuredOutline, *, with_heads: bool
) -> dict[str, int]:
    """Bytes by tensor, without the heads that are not loaded, with what `lora` adds."""
    sizes = {name: size for part in parts_of(path) for name, size in tensor_sizes(part).items()}
    n_layers, n_heads = measured.n_layers, 0 if with_heads else measured.n_heads
    heads = tuple(f"blk.{layer}." for layer in range(n_layers - n_heads, n_layers))
    used = {name: size for name, size in sizes.items() if not name.startswith(heads)}
    return used | _adapter_weights(options, used)


def _adapter_weights(options: ModelOptions, weights: Mapping[str, int]) -> dict[str, int]:
    """Bytes of what `lora` adds to `weights`, each beside its tensor; what does not fit is refused later."""
    return {
        f"{name} of {adapter.path}": size
        for adapter in options.lora
        for name, size in tensor_sizes(adapter.path).items()
        if name.removesuffix(".lora_a").removesuffix(".lora_b") in weights
    }


def _step_bytes(weights: Mapping[str, int], used_experts: float) -> int:
    """Weights that are read for one token: of the experts this share, and embeddings only as the output."""
    n_read = 0.0 if "output.weight" in weights else weights.get("token_embd.weight", 0)
    for name, n_bytes in weights.items():
        group = group_of(name)
        n_read += 0 if group == EMBEDDINGS else n_bytes * (used_experts if group == EXPERTS else 1)
    return int(n_read)


def _refuse_several_slots(path: Path, n_slots: int) -> None:
    """llama.cpp computes other logits for these models when two prompts are in one batch, or aborts."""
    architecture = read_beginning(path).get("general.architecture")
    if architecture in _ONE_SLOT_ONLY and n_slots > 1:
        raise ModelLoadError(
            f"{path} cannot be used with {n_slots} slots: llama.cpp is wrong about several sequences of "
            f"{architecture} models. Use --parallel 1 (and --n-branches 0 for a back)"
        )


def _refuse_unguarded_slots(path: Path, context: ContextNeeds) -> None:
    """Each slot needs a second sequence (`WindowGuard`)."""
    n_most, n_slots = MAX_SLOTS // 2, context.n_slots
    if context.is_guarded and n_slots > n_most:
        raise ModelLoadError(
            f"{path}: a model with a sliding window has at most {n_most} slots in one KV cache, not "
            f"{n_slots}: lower --parallel, or use --no-kv-unified"
        )


def _without_a_wrong_pool(options: ModelOptions, probe: MemoryProbe) -> ModelOptions:
    """In one pool llama.cpp gives away cells of recurrent models' windows that are still seen, silently."""
    is_wrong = probe.is_recurrent and probe.n_window > 0
    return options.model_copy(update={"kv_unified": False}) if is_wrong else options


def choose_n_ctx(options: ModelOptions, n_ctx_train: int) -> int:
    """Number of cells in the KV cache: `ctx_size`, or a default for 0."""
    return options.ctx_size or min(n_ctx_train * options.parallel, DEFAULT_CTX)


def choose_traits(
    probe: MemoryProbe, options: ModelOptions, n_slots: int, free_bytes: int, n_step_checkpoints: int = 0
) -> MemoryTraits:
    """How to use the memory of a model, with `free_bytes` of memory free besides its weights.

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


def n_prompt_checkpoints(traits: MemoryTraits, options: ModelOptions) -> int:
    """How many states of each slot may be stored in host memory, to reuse prompts."""
    if traits.can_trim:
        return 0
    all_bytes = options.parallel * max(1, traits.checkpoint_bytes)
    return min(options.ctx_checkpoints, (options.checkpoint_memory << 20) // all_bytes)


def size_prompt_cache(
    options: ModelOptions, probe: MemoryProbe, n_left: int, context: ContextNeeds
) -> PromptCacheSize:
    """How large it may be with `n_left` bytes free."""
    if not context.can_store:
        return NO_PROMPT_CACHE
    n_bytes = max(0, int(MEMORY_SHARE * n_left))
    if options.cache_ram >= 0:
        n_bytes = min(n_bytes, options.cache_ram << 20)
    if not context.has_parts:
        return PromptCacheSize(n_bytes, probe.full_token_bytes, probe.checkpoint_bytes)
    token_bytes = probe.full_token_bytes + probe.window_token_bytes
    return PromptCacheSize(n_bytes, token_bytes, 0, _part(max(1, _PART_BYTES // max(1, token_bytes)), probe))


def _part(n_most: int, probe: MemoryProbe) -> int:
    """Tokens in a part. None begins in one window and ends in the next (Llama 4's begin at multiples)."""
    n_window = probe.n_window
    if n_window == 0:
        return n_most
    return n_window // next(
        n for n in range(1, n_window + 1) if n_window % n == 0 and n_window // n <= n_most
    )


def describe_prompt_cache(size: PromptCacheSize) -> str:
    """For the log and `--check`."""
    if size.n_bytes == 0:
        return "none"
    text = f"up to {size_text(size.n_bytes)} of earlier texts in host memory, "
    if size.state_bytes == 0:
        return f"{text}{size.n_bytes // size.token_bytes} tokens"
    return (
        f"{text}{size_text(size.token_bytes)} a token and {size_text(size.state_bytes)} a text or checkpoint"
    )


def describe_checkpoints(traits: MemoryTraits, options: ModelOptions) -> str:
    """For the log and `--check`; empty if the memory needs none."""
    if traits.can_trim:
        return ""
    n, n_bytes = n_prompt_checkpoints(traits, options), traits.checkpoint_bytes
    if n == 0:
        return "none: requests cannot reuse earlier prompts (--ctx-checkpoints, --checkpoint-memory)"
    at_most = size_text(n * n_bytes * options.parallel)
    return f"up to {n} of each slot, {size_text(n_bytes)} each, {at_most} in all"


def _n_fitting(state_bytes: int, free_bytes: int) -> int:
    """How many times `state_bytes`, the states of all slots, may be kept besides the current ones."""
    return max(0, int(MEMORY_SHARE * free_bytes)) // max(1, state_bytes)
