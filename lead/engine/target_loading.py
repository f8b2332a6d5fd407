"""Loads the target so that the planned inline sources can read its outputs.

A ring plugs in at the seam `target_loader`: it loads the target so that a stronger guarantee holds
(`--exact`).
"""

from typing import Protocol

from lead.engine.engine_limits import EngineLimits
from lead.engine.events import Exactness
from lead.engine.inline_sources import PlannedSource
from lead.engine.load import Load
from lead.rings.table import RINGS
from shared.errors import ModelLoadError
from shared.llama.memory_plan import MemoryPlan
from shared.llama.model import Model
from shared.memory.plan_memory import plan_memory
from shared.seams import plugged
from shared.settings.model_options import ModelOptions
from shared.text_store import NO_PROMPT_CACHE, PromptCacheSize


class OpenTarget(Protocol):
    """A function that loads the target. It may be called again after the model was closed."""

    def __call__(self, options: ModelOptions, n_reserve: int = 0) -> Model:
        """Load the target with these options; n_reserve: see `plan_memory`. Raises ModelLoadError."""


def load_target(load: Load, planned: PlannedSource | None = None) -> tuple[Model, Exactness]:
    """Load the target; return it and its guarantee.

    Raises ModelLoadError if that fails, or if --exact is required and impossible.
    """

    def open_target(options: ModelOptions, n_reserve: int = 0) -> Model:
        model = Model(plan_target(load, planned, options, n_reserve), load.images)
        if planned:
            planned.attach(model)
        return model

    if loader := next(plugged(RINGS, "target_loader"), None):
        with_heads = planned is not None
        loaded: tuple[Model, Exactness] = loader.load_target(load, open_target, with_heads=with_heads)
        return loaded
    _refuse_exact(load.options)
    return open_target(load.options), Exactness()


def plan_target(
    load: Load, planned: PlannedSource | None, options: ModelOptions, n_reserve: int = 0
) -> MemoryPlan:
    """Return the target's memory plan with `options` instead of `load.options`. Raises
    ModelLoadError.
    """
    return plan_memory(
        load.model,
        options,
        n_reserve=n_reserve,
        with_heads=planned is not None and planned.load_mtp,
        with_workers=bool(load.rpc),
        taken=load.taken,
    )


def options_of_target(options: ModelOptions) -> tuple[ModelOptions, int]:
    """Return (options, n_reserve) for loading the target; --exact auto may load it again with other options.

    n_reserve: see `plan_memory`. Raises ModelLoadError.
    """
    if loader := next(plugged(RINGS, "target_loader"), None):
        used: tuple[ModelOptions, int] = loader.options_of_target(options)
        return used
    _refuse_exact(options)
    return options, 0


def _refuse_exact(options: ModelOptions) -> None:
    if options.exact == "on":
        raise ModelLoadError("--exact on: this lead was installed without support for it. Use --exact off")


def limits_of(
    model: Model, n_checkpoints: int = 0, prompt_cache: PromptCacheSize = NO_PROMPT_CACHE
) -> EngineLimits:
    """Return the limits of a target, for the scheduler. n_checkpoints: stored states per slot."""
    n_reserve = model.batch_sizes.n_reserve if model.batch_sizes else 0
    return EngineLimits(
        n_slots=model.n_slots,
        n_ctx=model.n_ctx - model.n_slots * n_reserve,
        n_ctx_sequence=model.n_ctx_slot - n_reserve,
        n_batch=model.n_batch,
        traits=model.traits,
        n_checkpoints=n_checkpoints,
        prompt_cache=prompt_cache,
        step_bytes=model.plan.step_bytes,
        n_ubatch=model.n_ubatch,
        own_cells=not model.plan.context.kv_unified,
        batch_sizes=model.batch_sizes,
        tiles_attention=model.tiles_attention,
    )
