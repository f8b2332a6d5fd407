"""Measurements in the process that loads the models, which is pinned to the measured cores.

A loaded model stays loaded in that process, so that two processes can be timed at the same time.
"""

import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.planning.acceptance_trial import AcceptanceTrial
from lab.planning.measurements import AcceptanceRate, DrafterTimes, EngineTimes
from lead.attention.before_load import choose_attention
from lead.engine.calibration import BATCH_SIZES, StepTimer
from lead.engine.draft_loading import choose_threads, load_inline_sources, place_draft_model
from lead.engine.drafters.draft_source import InlineDrafter
from lead.engine.inline_sources import PlannedSource, planned_source
from lead.engine.load import Load, LoadDraft
from shared.llama.model import Model
from shared.memory.plan_memory import plan_memory
from shared.sampling.factory import make_sampler
from shared.sampling.parameters import SamplingParameters
from shared.sampling.remote_grammar import GrammarServer, TimeBudget
from shared.settings.model_options import ModelOptions
from shared.step_cost import StepCost

_N_EACH = 32
_TRIAL_SECONDS = 6.0
_SPLIT_SECONDS = 4.0
_REPEATS = 5


def measure_engine(load: Load, sampling: SamplingParameters, texts: Sequence[str]) -> EngineTimes:
    """Measure T(n) of the target, and the drafters inside the engine. Raises ModelLoadError."""
    planned = planned_source(load) or planned_source(load.model_copy(update={"draft": None}))
    load = choose_attention(place_draft_model(load))  # as the lead will
    load_mtp = planned is not None and planned.load_mtp
    model = Model(plan_memory(load.model, load.options, with_heads=load_mtp, taken=load.taken))
    if planned:
        planned.attach(model)
    cost = StepCost()
    timer = StepTimer.of_target(model, model.n_vocab)
    timer.warm_up()
    timer.calibrate(cost)
    if not model.traits.can_speculate:
        return EngineTimes(cost.table(), speculates=False, is_offloaded=model.is_offloaded)
    grammars = GrammarServer(load.model, TimeBudget())
    try:
        drafters, costs = _drafters(load, model, planned, grammars)
        return _with_trial(model, cost, drafters, costs, sampling, texts)
    finally:
        grammars.close()


def _drafters(
    load: Load, model: Model, planned: PlannedSource | None, grammars: GrammarServer
) -> tuple[list[InlineDrafter[Any]], dict[str, StepCost]]:
    """Return the drafters in the engine, and T(n) of each drafter by its source."""
    sources = load_inline_sources(load, model, planned)
    drafters: list[InlineDrafter[Any]] = [each.drafter(grammars, TimeBudget()) for each in sources]
    costs = {each.source: StepCost() for each in sources}
    for each in sources:
        each.calibrate(costs[each.source])
    return drafters, costs


def _with_trial(  # noqa: PLR0917 - what was loaded, and what to do with it
    model: Model,
    cost: StepCost,
    drafters: Sequence[InlineDrafter[Any]],
    costs: Mapping[str, StepCost],
    sampling: SamplingParameters,
    texts: Sequence[str],
) -> EngineTimes:
    vocabulary = model.vocabulary
    trial = AcceptanceTrial(
        model,
        drafters,
        lambda parameters, history: make_sampler(parameters, vocabulary, history),
        vocabulary.end_tokens,
        time.monotonic,
        n_batch=model.n_batch,
    )
    n_each = min(_N_EACH, model.n_ctx_slot // 2)
    prompts = [vocabulary.tokenize(each, add_special=True, parse_special=True) or [0] for each in texts]
    trial.run([each[: model.n_ctx_slot - n_each] for each in prompts], sampling, n_each, _TRIAL_SECONDS)
    found = {}
    for source, tried in trial.trials.items():
        # a round takes no less time than its decode, whose T(n) was measured separately
        decode = costs[source].seconds(1)
        rate = AcceptanceRate(tried.n_right, tried.n_positions) if tried.n_positions else None
        token_s = max(tried.token_s, decode)
        slope = max(0.0, costs[source].seconds(2) / decode - 1)
        found[source] = DrafterTimes(token_s, token_s - decode, slope, rate)
    settling = tuple(cost.settling) if model.is_offloaded else ()
    return EngineTimes(
        cost.table(), trial.choose_s, found, is_offloaded=model.is_offloaded, settling=settling
    )


# Lead and back on cores of their own


def measure_steps(
    path: Path,
    options: ModelOptions,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    n_repeats: int = _REPEATS,
    max_seconds: float = _SPLIT_SECONDS,
) -> dict[int, float]:
    """Return T(n) of a model in seconds, by n. Raises ModelLoadError."""
    model, cost = _loaded(path, options), StepCost()
    timer = StepTimer.of_target(model, model.n_vocab)
    timer.warm_up()
    timer.calibrate(cost, batch_sizes=batch_sizes, n_repeats=n_repeats, max_seconds=max_seconds)
    return cost.table()


def measure_token(load: LoadDraft) -> float:
    """Return the seconds that a draft model takes to decode a token. Raises ModelLoadError."""
    choose_threads(load, _loaded(load.model, load.options))
    return measure_steps(load.model, load.options, [1])[1]


@functools.lru_cache(maxsize=1)
def _loaded(path: Path, options: ModelOptions) -> Model:
    return Model(plan_memory(path, options))
