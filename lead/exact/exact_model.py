"""Loads the target so that it keeps what is promised of its texts, and finds out what that costs.

With --exact each slot has cells of its own, in which keys lie in the order of their positions, and the model
decodes in sizes that agree on this machine (`shared.llama.batch_invariance`). What was measured for it is
kept, so that the next start takes no longer than without (`shared.llama.remembered`).
"""

import logging

from lead.engine.engine_limits import EngineLimits
from lead.engine.events import Exactness
from lead.engine.load import Load
from shared.cached_files import CacheFolder
from shared.errors import ModelLoadError
from shared.exact.invariance_probe import NEEDED_CONTEXT, estimate_sizes, measure_sizes, rehearse
from shared.llama.attention_probe import choose_flash_attention
from shared.llama.batch_invariance import RESERVE
from shared.llama.memory_plan import on_cpu
from shared.llama.model import Model
from shared.llama.remembered import Remembered
from shared.llama.start_key import StoredKind, changed_meanwhile, start_key, state_of_files
from shared.prompt_cache import NO_PROMPT_CACHE, PromptCacheSize

log = logging.getLogger("engine")

_MOST_SECONDS = 2.5
"""A model that needs longer is measured only with --exact."""
_SPARE_SECONDS = 2.0
"""With --exact: to measure more than is needed."""
_MAX_AUTO_COST = 1.05
"""With --exact auto: the most that a step of one token may take, as a ratio."""
_VERSION = 3
"""Raise this when other sizes would be found, or more is asked of them."""


def load_target(load: Load, *, with_heads: bool = False) -> tuple[Model, Exactness]:
    """Raises ModelLoadError, also where --exact is required and cannot be had."""
    files = state_of_files(load.model, load.options)
    stored = _stored(load, files, with_heads=with_heads)
    model, exactness = _load_target(load, stored, with_heads=with_heads)
    if model.files != files:
        model.close()
        raise changed_meanwhile(load.model)
    return model, exactness.model_copy(update={"key": stored.key})


def _load_target(load: Load, stored: Remembered[Exactness], *, with_heads: bool) -> tuple[Model, Exactness]:
    known = load.exactness if load.exactness and load.exactness.key == stored.key else None
    if known and known.is_on:  # a GPU that has room by now would compute other bits
        load = load.model_copy(update={"options": on_cpu(load.options)})
    if known := known or _recalled(load, stored):
        model = _load(load, exact=known.is_on, with_heads=with_heads)
        if not known.is_on or not _why_never(model):
            model.batch_sizes = known.batch_sizes
            return model, known
        model.close()  # a GPU has room for its layers now
    if load.options.exact == "off":
        model = _load(load, exact=False, with_heads=with_heads)
        exactness = _price(model) if load.calibrate else Exactness(reason=_NOT_TIMED)
        if exactness.cost is not None:
            stored.keep(exactness)
        return model, exactness
    model, exactness = _measured(load, with_heads=with_heads)
    stored.keep(exactness)
    return model, exactness


def choose_attention(load: Load) -> Load:
    """With flash attention chosen by measurement, unless results must not depend on the cache (--exact)."""
    if not load.calibrate or load.options.exact != "off":
        return load
    n_threads = load.most_threads or load.options.threads
    options = choose_flash_attention(load.model, load.options, n_threads)
    return load.model_copy(update={"options": options})


def limits_of(
    model: Model, n_checkpoints: int = 0, prompt_cache: PromptCacheSize = NO_PROMPT_CACHE
) -> EngineLimits:
    """What a scheduler may use of a target; n_checkpoints: stored states of each slot."""
    n_reserve = RESERVE if model.batch_sizes else 0
    return EngineLimits(
        n_slots=model.n_slots,
        n_ctx=model.n_ctx - model.n_slots * n_reserve,
        n_ctx_sequence=model.n_ctx_slot - n_reserve,
        n_batch=model.n_batch,
        traits=model.traits,
        n_checkpoints=n_checkpoints,
        prompt_cache=prompt_cache,
        step_bytes=model.step_bytes,
        own_cells=not model.kv_unified,
        batch_sizes=model.batch_sizes,
        tiles_attention=model.tiles_attention,
    )


def _recalled(load: Load, stored: Remembered[Exactness]) -> Exactness | None:
    """None if nothing was measured for such a start, or it cannot be read."""
    exactness = stored.recall()
    if exactness and load.options.exact != "off":
        log.info("--exact: as measured at an earlier start (%s)", stored.path)
    return exactness


def _stored(load: Load, files: str, *, with_heads: bool) -> Remembered[Exactness]:
    key = start_key(
        StoredKind.EXACTNESS, files, load.options, version=_VERSION, with_heads=with_heads, rpc=bool(load.rpc)
    )
    return Remembered(CacheFolder.EXACTNESS, Exactness, key)


def _measured(load: Load, *, with_heads: bool) -> tuple[Model, Exactness]:
    """Raises ModelLoadError where exact mode is required and cannot be had."""
    model = _load(load, exact=True, with_heads=with_heads)
    exactness = put_into_force(model)
    if load.options.exact == "on" and not exactness.is_on:
        raise ModelLoadError(f"{load.model}: no --exact here: {exactness.reason}")
    if load.options.exact == "on" or (exactness.is_on and (exactness.cost or 0.0) <= _MAX_AUTO_COST):
        return model, exactness
    model.close()
    return _load(load, exact=False, with_heads=with_heads), exactness.model_copy(update={"batch_sizes": None})


def _load(load: Load, *, exact: bool, with_heads: bool) -> Model:
    options, n_reserve = (load.options.for_exact(), RESERVE) if exact else (load.options, 0)
    return Model(
        load.model,
        options,
        n_reserve=n_reserve,
        with_heads=with_heads,
        with_workers=bool(load.rpc),
        taken=load.taken,
    )


def put_into_force(model: Model) -> Exactness:
    """Measure and rehearse; the sizes are then those of `model`."""
    if reason := _why_never(model):
        return Exactness(reason=reason)
    report = measure_sizes(model, _SPARE_SECONDS)
    batch_sizes = report.batch_sizes()
    if batch_sizes is None:
        return Exactness(reason=_NO_SIZES)
    kept = rehearse(model, batch_sizes)
    log.info("sizes whose logits agree: %s; rehearsed: %s", report.describe(), kept)
    if kept is None:
        return Exactness(reason=_NOT_KEPT)
    return Exactness(batch_sizes=kept, cost=report.price(kept))


def _price(model: Model) -> Exactness:
    """What --exact would cost."""
    if reason := _why_never(model):
        return Exactness(reason=reason)
    report = estimate_sizes(model, _MOST_SECONDS)
    if report is None:
        return Exactness(reason=f"the model is too large to measure that within {_MOST_SECONDS:g} s")
    batch_sizes = report.batch_sizes()
    return Exactness(cost=report.price(batch_sizes)) if batch_sizes else Exactness(reason=_NO_SIZES)


_HINT = "try weights in f16 or q8_0, --no-repack, --flash-attn off or a KV cache in f16"
_NO_SIZES = f"no two sizes of batches give the same bits; {_HINT}"
_NOT_TIMED = "--no-calibrate: its price was not measured"
_NOT_KEPT = f"a rehearsed text had other bits next to other sequences; {_HINT}"


def _why_never(model: Model) -> str:
    """Why a model has no exact mode, whatever is measured; empty: it may have one."""
    if model.traits.equal_lengths:
        return "a recurrent state depends on how a text was divided into batches"
    if model.is_offloaded:
        return (
            "with layers on a GPU or on RPC workers it has never been shown that any sizes agree; try "
            "--n-gpu-layers 0"
        )
    if model.n_ctx_slot < NEEDED_CONTEXT:
        return f"each slot needs a context of at least {NEEDED_CONTEXT} tokens"
    return ""
