"""Loads the target so that it keeps the guarantee for its texts, and measures the cost.

With --exact, each slot has its own cells, in which keys are in the order of their positions. The model
decodes in batch sizes that agree on this machine (`shared.exact.batch_invariance`). The measurement is
cached, so that the next start takes no longer than without --exact (`shared.llama.remembered`).
"""

import logging
from pathlib import Path

from lead.engine.events import Exactness
from lead.engine.load import Load
from lead.engine.target_loading import OpenTarget
from lead.exact.exact_mode import ExactMode
from shared.cached_files import CacheFolder
from shared.errors import ModelLoadError
from shared.exact.batch_invariance import RESERVE, InvariantSizes
from shared.exact.invariance_probe import (
    NEEDED_CONTEXT,
    SizeReport,
    estimate_sizes,
    measure_sizes,
    rehearse,
)
from shared.llama.model import Model
from shared.llama.remembered import Remembered
from shared.llama.start_key import StoredKind, changed_meanwhile, start_key, state_of_files
from shared.settings.model_options import ModelOptions

log = logging.getLogger("engine")

_MAX_SECONDS = 2.5
"""A model whose measurement takes longer is measured only with --exact."""
_SPARE_SECONDS = 2.0
"""The time limit, with --exact, for measurements that are not required."""
_MAX_AUTO_COST = 1.05
"""The maximum cost of a step of one token with --exact auto, as a ratio."""
_VERSION = 4
"""Raise this when other sizes or costs would be found, or sizes must meet more conditions."""


def load_target(load: Load, open_target: OpenTarget, *, with_heads: bool) -> tuple[Model, Exactness]:
    """Load the target; raises ModelLoadError if that fails, or if --exact is required and impossible.

    with_heads: passes also compute the states that the heads read.
    """
    files = state_of_files(load.model, load.options)
    stored = _stored(load, files, with_heads=with_heads)
    model, mode = _load_target(load, stored, open_target)
    if model.facts.files != files:
        model.close()
        raise changed_meanwhile(load.model)
    return model, mode.model_copy(update={"key": stored.key}).exactness()


def _load_target(
    load: Load, stored: Remembered[ExactMode], open_target: OpenTarget
) -> tuple[Model, ExactMode]:
    options = load.options
    told = ExactMode.of(load.exactness)
    known = told if told and told.key == stored.key else None
    if known and known.is_on:  # a GPU may have room by now, and would compute other bits
        options = options.on_cpu()
    if known := known or _recalled(load, stored):
        model = open_target(options.for_exact(), RESERVE) if known.is_on else open_target(options)
        if not known.is_on or not _why_never(model):
            model.batch_sizes = known.batch_sizes
            return model, known
        model.close()  # a GPU has room for its layers now
    if options.exact == "off":
        model = open_target(options)
        mode = _price(model) if load.calibrate else ExactMode(reason=_NOT_TIMED)
        if mode.cost is not None:
            stored.keep(mode)
        return model, mode
    model, mode = _measured(load.model, options, open_target)
    if options.exact == "on" or mode.reason != _NOISY:
        stored.keep(mode)
    return model, mode


def _recalled(load: Load, stored: Remembered[ExactMode]) -> ExactMode | None:
    """Return the cached measurement of an equal start; None if there is none that can be read."""
    mode = stored.recall()
    if mode and load.options.exact != "off":
        log.info("--exact: using the measurement of an earlier start (%s)", stored.path)
    return mode


def _stored(load: Load, files: str, *, with_heads: bool) -> Remembered[ExactMode]:
    key = start_key(
        StoredKind.EXACTNESS, files, load.options, version=_VERSION, with_heads=with_heads, rpc=bool(load.rpc)
    )
    return Remembered(CacheFolder.EXACTNESS, ExactMode, key)


def _measured(path: Path, options: ModelOptions, open_target: OpenTarget) -> tuple[Model, ExactMode]:
    """Load the target and measure exact mode, or load it without.

    Raises ModelLoadError if exact mode is required but impossible.
    """
    model = open_target(*options_of_target(options))
    mode = enable_exact_mode(model)
    if options.exact == "on" and not mode.is_on:
        raise ModelLoadError(f"{path}: --exact is not possible here: {mode.reason}")
    if options.exact == "on" or (mode.is_on and mode.cost is not None and mode.cost <= _MAX_AUTO_COST):
        return model, mode
    model.close()
    return open_target(options), mode.model_copy(update={"batch_sizes": None})


def options_of_target(options: ModelOptions) -> tuple[ModelOptions, int]:
    """Return (options, n_reserve) to load the target; `exact` auto may load it again with other options."""
    return (options.for_exact(), RESERVE) if options.exact != "off" else (options, 0)


def enable_exact_mode(model: Model) -> ExactMode:
    """Measure which batch sizes are exact, decode once with each of them, and make `model` use them."""
    if reason := _why_never(model):
        return ExactMode(reason=reason)
    report = measure_sizes(model, _SPARE_SECONDS)
    batch_sizes = report.batch_sizes()
    if batch_sizes is None:
        return ExactMode(reason=_NO_SIZES)
    kept = rehearse(model, batch_sizes)
    log.info("batch sizes with equal logits: %s; tested with whole texts: %s", report.describe(), kept)
    if kept is None:
        return ExactMode(reason=_NOT_KEPT)
    return _priced(report, kept).model_copy(update={"batch_sizes": kept})


def _price(model: Model) -> ExactMode:
    """Return the estimated cost of exact mode, which stays off; or the reason why it is impossible."""
    if reason := _why_never(model):
        return ExactMode(reason=reason)
    report = estimate_sizes(model, _MAX_SECONDS)
    if report is None:
        return ExactMode(reason=f"the model is too large to measure batch sizes within {_MAX_SECONDS:g} s")
    batch_sizes = report.batch_sizes()
    return _priced(report, batch_sizes) if batch_sizes else ExactMode(reason=_NO_SIZES)


def _priced(report: SizeReport, batch_sizes: InvariantSizes) -> ExactMode:
    """Return the cost of these sizes for a mode that is off."""
    cost = report.price(batch_sizes)
    return ExactMode(cost=cost, reason=_NOISY if cost is None else "")


_HINT = "try weights in f16 or q8_0, --no-repack, --flash-attn off or a KV cache in f16"
_NO_SIZES = f"no two batch sizes give the same bits; {_HINT}"
_NOT_TIMED = "--no-calibrate"
_NOISY = "times varied too much, perhaps because of other programs"
_NOT_KEPT = f"the logits of a test text changed when other sequences ran beside it; {_HINT}"


def _why_never(model: Model) -> str:
    """Return why a model cannot have exact mode, without measuring; empty: it may have it."""
    if model.traits.equal_lengths:
        return "the model's recurrent states depend on the batches in which a text is decoded"
    if model.is_offloaded:
        return (
            "batch sizes with equal bits are not known for layers on a GPU or RPC worker; try "
            "--n-gpu-layers 0"
        )
    if model.n_ctx_slot < NEEDED_CONTEXT:
        return f"each slot needs a context of at least {NEEDED_CONTEXT} tokens"
    return ""
