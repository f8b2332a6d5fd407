"""The engine process; `lead.engine.__main__` is its entry point."""

import functools
import logging
import sys
import time
from collections.abc import Callable

from lead.engine.calibration import Recalibration, StepTimer, recalibrate
from lead.engine.commands import NGRAM, PREDICTION, SUFFIX, Load, Submit
from lead.engine.draft_loading import (
    InlineModel,
    calibrate_drafting,
    calibrate_heads,
    heads_file,
    load_draft_model,
    make_drafter,
    make_mtp_drafter,
    wants_heads,
)
from lead.engine.drafters.inline_drafter import InlineDrafter
from lead.engine.drafters.local_drafter import LocalDrafter
from lead.engine.drafters.ngram import NgramDrafter
from lead.engine.drafters.prediction import PredictionDrafter
from lead.engine.drafters.seen_texts import SeenTexts
from lead.engine.drafters.suffix import SuffixDrafter
from lead.engine.engine import Engine
from lead.engine.engine_limits import EngineLimits
from lead.engine.events import Exactness, LoadFailed, Ready
from lead.engine.exact_model import limits_of, load_target
from lead.engine.heartbeat import Computing, Heartbeat
from lead.engine.loop import Loop
from lead.engine.pipe import EnginePipe, low_numbered
from lead.engine.rpc_workers import wait_for_workers
from lead.engine.speculation.batching import batching_for
from lead.engine.speculation.manager import SpeculationManager
from lead.engine.speculation.step_cost import StepCost
from lead.engine.step_plan import TrialPlace
from shared.errors import ModelLoadError
from shared.llama import rpc_backend
from shared.llama.eagle_heads import EagleHeads
from shared.llama.memory_plan import describe_checkpoints, describe_prompt_cache, n_prompt_checkpoints
from shared.llama.memory_probe import size_text
from shared.llama.model import Model
from shared.llama.mtp_heads import MtpHeads
from shared.logs import configure_logging
from shared.rpc_probe import WorkerAwayError
from shared.sampling.factory import make_sampler
from shared.sampling.remote_grammar import GrammarServer, TimeBudget
from shared.sampling.sampler import Sampler

log = logging.getLogger("engine")

_MAX_STEP_SECONDS = 0.3
"""Where a step takes longer, no further ones are timed: a request would have to wait for them."""
_NGRAM_BITS = 14
"""A quarter of a megabyte per request, running or waiting; repetitions further back are forgotten."""


def main() -> None:
    """Load the model that the first command names, then serve until the front closes the pipe."""
    descriptor, level = sys.argv[1:3]
    configure_logging(level, as_json="json" in sys.argv[3:])  # type: ignore[arg-type]  # the front passes on its own valid level
    pipe = EnginePipe(low_numbered(int(descriptor)))
    commands = pipe.drain(None)
    if not commands:
        return
    load, *early = commands
    assert isinstance(load, Load) and not early, "the front sends Load, then waits for Ready"  # noqa: PT018 - one claim
    heartbeat = Heartbeat(load.heartbeat_seconds, pipe.send) if load.heartbeat_seconds else None
    if heartbeat:
        heartbeat.start()
    try:
        _reach_workers(load, heartbeat)
        model, exactness = load_target(load, with_heads=wants_heads(load))
        drafts_with = _load_drafting(load, model)
    except ModelLoadError as error:
        pipe.send(LoadFailed(reason=str(error)))
        sys.exit(1)
    except WorkerAwayError as error:
        pipe.send(LoadFailed(reason=str(error), may_recover=True))
        sys.exit(1)
    if heartbeat:
        progress = model.watch_steps()
        heartbeat.watch(lambda: pipe.has_been_read() or progress.has_proceeded())
    _serve(model, exactness, drafts_with, load, pipe)


def _reach_workers(load: Load, heartbeat: Heartbeat | None) -> None:
    """Raises ModelLoadError, WorkerAwayError."""
    if not load.rpc:
        return
    wait_for_workers(load.rpc, load.rpc_timeout)
    if heartbeat:
        heartbeat.watch(Computing().has_proceeded)  # a worker that hangs lets llama.cpp wait for ever
    rpc_backend.add_workers(load.rpc)


def _load_drafting(load: Load, model: Model) -> InlineModel | MtpHeads | None:
    """What drafts inside the engine; raises ModelLoadError."""
    own_file = heads_file(load)
    if load.draft and not own_file:
        return load_draft_model(load.draft, model)
    if not model.traits.can_speculate or not (own_file or model.hidden):
        return None
    return model.open_heads(own_file)


def _serve(
    model: Model,
    exactness: Exactness,
    drafts_with: InlineModel | MtpHeads | None,
    load: Load,
    pipe: EnginePipe,
) -> None:
    vocabulary = model.vocabulary
    limits = limits_of(model, n_prompt_checkpoints(model.traits, load.options), model.prompt_cache)
    budget = TimeBudget()
    grammars = GrammarServer(load.model, budget)

    def sampler_for(request: Submit) -> Sampler:
        return make_sampler(request.sampling, vocabulary, request.tokens, follow=grammars.follow)

    drafter, prepare = _inline_drafter(load, model, drafts_with, grammars, budget)
    seen = _seen_texts(load)
    speculation = SpeculationManager(
        load.policy,
        load.depth,
        vocabulary.end_tokens,
        lambda request: _local_drafters(request, load, seen),
        batching=batching_for(limits),
        inline=drafter,
        widths=model.widths,
    )
    if speculation.inline:
        prepare(speculation.inline.cost)
    engine = Engine(limits, speculation, sampler_for, vocabulary.end_tokens, budget)
    log.info("memory: %s", model.memory_size)
    if checkpoints := describe_checkpoints(model.traits, load.options):
        log.info("checkpoints: %s", checkpoints)
    log.info("prompt cache: %s", describe_prompt_cache(model.prompt_cache))
    if not model.traits.can_speculate:
        log.warning("serving without speculation: the model's recurrent states cannot be kept")
    timer = StepTimer.of_target(model, model.n_vocab)
    timer.seconds(1)  # reads all weights: a step takes longer the first time
    grammars.start()  # not earlier: its processes take a core while they load
    pipe.send(_ready(limits, exactness, drafts_with))
    recalibration = None
    if limits.traits.can_speculate and load.calibrate:
        timer.calibrate(speculation.cost, lambda: pipe.readable)
        recalibration = _recalibration(model, speculation.cost, pipe)
    forget_old = seen.forget_old if seen else lambda: None
    Loop(model, engine, pipe, recalibration=recalibration, forget_old=forget_old).run()


def _recalibration(model: Model, cost: StepCost, pipe: EnginePipe) -> Recalibration:
    def measure(place: TrialPlace) -> bool:
        return recalibrate(
            model,
            cost,
            model.n_vocab,
            lambda: pipe.readable,
            place=place,
            max_step_seconds=_MAX_STEP_SECONDS,
        )

    return Recalibration(measure, time.monotonic())


def _ready(limits: EngineLimits, exactness: Exactness, drafts_with: InlineModel | MtpHeads | None) -> Ready:
    return Ready(
        n_ctx=limits.n_ctx,
        n_ctx_sequence=limits.n_ctx_sequence,
        n_slots=limits.n_slots,
        speculates=limits.traits.can_speculate,
        exactness=exactness,
        draft_model=_draft_name(drafts_with),
        mtp=isinstance(drafts_with, MtpHeads) and not isinstance(drafts_with, EagleHeads),
    )


def _draft_name(drafts_with: InlineModel | MtpHeads | None) -> str | None:
    """None: no model of its own drafts in the engine."""
    if isinstance(drafts_with, InlineModel):
        return drafts_with.name
    return drafts_with.title if isinstance(drafts_with, EagleHeads) else None


def _inline_drafter(
    load: Load,
    model: Model,
    drafts_with: InlineModel | MtpHeads | None,
    grammars: GrammarServer,
    budget: TimeBudget,
) -> tuple[InlineDrafter | None, Callable[[StepCost], None]]:
    """(what drafts inside the engine, how to measure T(n) of it)."""
    if isinstance(drafts_with, MtpHeads):
        drafting = make_mtp_drafter(model, drafts_with, load.n_most_mtp, grammars, budget)
        return drafting, functools.partial(_measure_heads, drafts_with, model, load.options.parallel)
    if load.draft and drafts_with:
        drafter = make_drafter(load.draft, drafts_with, grammars, budget)
        return drafter, functools.partial(_measure_draft_model, drafts_with)
    return None, lambda _: None


def _measure_draft_model(inline: InlineModel, cost: StepCost) -> None:
    model = inline.model
    calibrate_drafting(model, cost)
    log.info(
        "draft model: %s, %d thread%s, %.2f ms for a token; memory: %s for weights, %s",
        model.vocabulary.info.name,
        inline.n_threads,
        "" if inline.n_threads == 1 else "s",
        1000 * cost.seconds(1),
        size_text(model.vocabulary.info.size),
        model.memory_size,
    )


def _measure_heads(heads: MtpHeads, model: Model, n_slots: int, cost: StepCost) -> None:
    assert model.hidden
    calibrate_heads(heads, cost)
    log.info(
        "drafting with %s, %.2f ms for a token; memory: %s for weights, %s, at most %s for hidden states",
        heads.title,
        1000 * cost.seconds(1),
        size_text(heads.weights_size),
        heads.memory_size,
        size_text(n_slots * model.hidden.n_bytes),
    )


def _seen_texts(load: Load) -> SeenTexts | None:
    if not load.suffix_memory:
        return None
    return SeenTexts(load.suffix_memory << 20, load.suffix_max_age, time.monotonic)


def _local_drafters(request: Submit, load: Load, seen: SeenTexts | None) -> dict[str, LocalDrafter]:
    drafters: dict[str, LocalDrafter] = {}
    if load.ngram:
        drafters[NGRAM] = NgramDrafter(_NGRAM_BITS)
    if request.prediction:
        drafters[PREDICTION] = PredictionDrafter(request.prediction, request.n_prompt or len(request.tokens))
    if seen is not None and request.options.owner is not None:
        drafters[SUFFIX] = SuffixDrafter(seen, request.options.owner)
    return drafters
