"""The engine process. `lead.engine.__main__` is its entry point."""

import logging
import socket
import sys
import time
from collections.abc import Callable, Sequence
from itertools import chain

from lead.engine.calibration import Recalibration, StepTimer, StepTimes, recalibrate
from lead.engine.commands import DRAFT_MODEL, MTP, NGRAM, PREDICTION, Submit
from lead.engine.draft_loading import load_inline_sources, place_draft_model
from lead.engine.drafters.draft_source import LookupDrafter
from lead.engine.drafters.lookup import NgramDrafter, PredictionDrafter
from lead.engine.engine import Engine
from lead.engine.engine_limits import EngineLimits
from lead.engine.engine_parts import EngineParts, Lookups
from lead.engine.events import Exactness, LoadFailed, Ready
from lead.engine.explain import Explain, Explained
from lead.engine.heartbeat import Heartbeat
from lead.engine.inline_sources import InlineSource, planned_source
from lead.engine.load import Load
from lead.engine.loop import Chore, Loop
from lead.engine.new_pieces import NewPieces
from lead.engine.pipe import EnginePipe, low_numbered
from lead.engine.side_jobs import SideJobs
from lead.engine.slot import TrialPlace
from lead.engine.speculation.manager import SpeculationManager
from lead.engine.speculation.memory_batching import batching_for
from lead.engine.target_loading import limits_of, load_target
from lead.engine.target_threads import TargetThreads
from lead.rings.table import RINGS
from shared import cpus
from shared.cached_files import CacheFolder
from shared.errors import AwayError, ModelLoadError
from shared.llama import library
from shared.llama.model import Model
from shared.llama.remembered import Remembered
from shared.llama.start_key import StoredKind, start_key
from shared.logs import configure_logging
from shared.memory.texts_kept import describe_checkpoints, describe_prompt_cache, n_prompt_checkpoints
from shared.sampling.factory import make_sampler
from shared.sampling.remote_grammar import GrammarServer, TimeBudget
from shared.sampling.sampler import Sampler
from shared.seams import plugged
from shared.step_cost import StepCost

log = logging.getLogger("engine")

_MAX_STEP_SECONDS = 0.3
"""After a longer step, no more steps are timed, because a request would have to wait for them."""
_NGRAM_BITS = 14
"""With this size the n-gram index takes a quarter of a megabyte per request, and forgets older repetitions.
"""
_VERSION = 1
"""Raise this when the meaning of stored step times changes."""
_MAX_AGE = 86_400.0
"""The age in seconds at which T(n) is measured again, because the machine may have been busy before."""


def main() -> None:
    """Load the model that the front's first line names, and serve until the front closes the pipe."""
    descriptor, grammars, level = sys.argv[1:4]
    configure_logging(level, as_json="json" in sys.argv[4:])  # type: ignore[arg-type]  # the front passes on its own valid level
    pipe = EnginePipe(low_numbered(int(descriptor)))
    line = pipe.read_line()
    if not line:
        return
    load = Load.model_validate_json(line)
    heartbeat = Heartbeat(load.heartbeat_seconds, pipe.send) if load.heartbeat_seconds else None
    if heartbeat:
        heartbeat.start()
    try:
        for module in plugged(RINGS, "before_load"):
            load = module.before_load(load, heartbeat)
        load = place_draft_model(load)
        planned = planned_source(load)
        model, exactness = load_target(load, planned)
        inline = next(iter(load_inline_sources(load, model, planned)), None)
    except ModelLoadError as error:
        pipe.send(LoadFailed(reason=str(error)))
        sys.exit(1)
    except AwayError as error:
        pipe.send(LoadFailed(reason=str(error), may_recover=True))
        sys.exit(1)
    if heartbeat:
        progress = model.watch_steps()
        heartbeat.watch(lambda: pipe.has_been_read() or progress.has_proceeded())
    _serve(model, exactness, inline, load, pipe, fork_server=socket.socket(fileno=int(grammars)))


def _serve(
    model: Model,
    exactness: Exactness,
    inline: InlineSource | None,
    load: Load,
    pipe: EnginePipe,
    *,
    fork_server: socket.socket,
) -> None:
    limits = limits_of(model, n_prompt_checkpoints(model.traits, load.options), model.prompt_cache)
    lookups: list[Lookups] = [lambda request: _lookups(request, load)]
    engine = _make_engine(model, limits, inline, load, lookups, fork_server=fork_server)
    threads = _threads(model, exactness, load)
    ready = _ready(limits, model, exactness, inline, threads.used)
    _log_what_is_loaded(model, load)
    side_jobs = SideJobs(pipe.send)
    side_jobs.register(Explain, lambda _: Explained(report=engine.explain()))
    # rings are plugged in before the first command can arrive
    parts = EngineParts(model, engine, load, side_jobs, lookups)
    for module in plugged(RINGS, "in_engine"):
        module.plug_in(parts)
    timer = StepTimer.of_target(model, model.n_vocab)
    timer.warm_up()
    pipe.send(ready)  # from now on commands may come; T(n) is measured until one does
    parts.chores.append(side_jobs)
    if limits.traits.can_speculate and load.calibrate:
        stored = Remembered(CacheFolder.STEP_TIMES, StepTimes, step_times_key(model, load, inline))
        parts.chores.extend(_calibrate(engine, model, stored, threads, timer, pipe=pipe))
    with parts.at_end:
        Loop(
            model,
            engine,
            pipe,
            chores=parts.chores,
            on_backs=lambda backs: threads.share(with_backs=backs.share_cores),
            on_ask=side_jobs.begin,
            before=NewPieces(model.vocabulary).of,
        ).run()


def _make_engine(
    model: Model,
    limits: EngineLimits,
    inline: InlineSource | None,
    load: Load,
    lookups: Sequence[Lookups],
    *,
    fork_server: socket.socket,
) -> Engine:
    vocabulary = model.vocabulary
    budget = TimeBudget()
    grammars = GrammarServer(load.model, budget, fork_server)

    def sampler_for(request: Submit) -> Sampler:
        return make_sampler(request.sampling, vocabulary, request.text, follow=grammars.follow)

    speculation = SpeculationManager(
        load.policy,
        load.depth,
        vocabulary.end_tokens,
        lambda request: dict(chain.from_iterable(each(request).items() for each in lookups)),
        batching=batching_for(limits, StepCost(settles=model.is_offloaded and not load.rpc)),
        inline=inline.drafter(grammars, budget) if inline else None,
        batch_sizes=model.batch_sizes,
    )
    if inline and speculation.inline:
        cost = speculation.inline.cost
        inline.calibrate(cost)
        log.info("%s", inline.describe(cost.seconds(1)))
    return Engine(limits, speculation, sampler_for, vocabulary.end_tokens, budget)


def _log_what_is_loaded(model: Model, load: Load) -> None:
    for adapter in load.options.lora:
        log.info("adapter: %s, scale %g", adapter.path, adapter.scale)
    log.debug("CPU kernel: %s", library.describe_kernel())
    log.debug("memory: %s", model.plan.size)
    if checkpoints := describe_checkpoints(model.traits, load.options):
        log.debug("checkpoints: %s", checkpoints)
    log.debug("prompt cache: %s", describe_prompt_cache(model.prompt_cache))
    if not model.traits.can_speculate:
        log.warning("speculation is off because the model's recurrent states cannot be kept")


def step_times_key(model: Model, load: Load, inline: InlineSource | None) -> str:
    """Return a key of all that T(n) depends on, except the length of texts and the load of the machine."""
    return start_key(
        StoredKind.STEP_TIMES,
        model.facts.files,
        model.plan.options,
        version=_VERSION,
        with_heads=inline is not None and inline.reads_target,
        batch_sizes=model.batch_sizes,
        rpc=load.rpc,
        max_threads=load.max_threads,
        cores=sorted(cpus.usable()),
    )


def _threads(model: Model, exactness: Exactness, load: Load) -> TargetThreads:
    """Return the choice of threads. With --exact it has one number, as another might compute other bits."""
    n = load.options.threads
    return TargetThreads(
        model.use_threads, n, n if exactness.is_on or model.is_offloaded else load.max_threads
    )


def _calibrate(
    engine: Engine,
    model: Model,
    stored: Remembered[StepTimes],
    threads: TargetThreads,
    timer: StepTimer,
    *,
    pipe: EnginePipe,
) -> list[Chore]:
    """Measure T(n) until a command arrives; return the chores that measure it again, if it was not stored."""
    cost = engine.speculation.cost
    if _has_recalled(stored, cost, threads, timer):
        return []
    timer.calibrate(cost, lambda: pipe.readable)
    measure = _measuring(model, cost, threads, pipe, stored)
    return [Recalibration(measure, time.monotonic(), engine.slots.find_place)]


def _has_recalled(
    stored: Remembered[StepTimes], cost: StepCost, threads: TargetThreads, timer: StepTimer
) -> bool:
    """Teach `cost` a stored T(n); return False if there is none, or it no longer fits."""
    known = stored.recall(max_age=_MAX_AGE)
    if known is None:
        return False
    threads.choose(known.n_threads)
    if known.teach(cost, timer):
        return True
    threads.choose(0)  # that is to be measured again, too
    return False


def _measuring(
    model: Model, cost: StepCost, threads: TargetThreads, pipe: EnginePipe, stored: Remembered[StepTimes]
) -> Callable[[TrialPlace], bool]:
    """Return the function that makes the measurements of a `Recalibration`."""

    def time_steps(place: TrialPlace) -> bool:
        return recalibrate(
            model, cost, model.n_vocab, lambda: pipe.readable, place=place, max_step_seconds=_MAX_STEP_SECONDS
        )

    def measure(place: TrialPlace) -> bool:
        has_learned = time_steps(place)
        if not has_learned or threads.are_shared:  # or the machine is busy
            return has_learned
        n_before = threads.used
        timer = StepTimer.of_target(model, model.n_vocab, place=place)
        threads.measure(lambda: timer.seconds(1), lambda: pipe.readable)
        if threads.used == n_before or (has_learned := time_steps(place)):
            stored.keep(StepTimes.of(cost, threads.used))
        return has_learned

    return measure


def _ready(
    limits: EngineLimits, model: Model, exactness: Exactness, inline: InlineSource | None, n_threads: int
) -> Ready:
    return Ready(
        n_ctx=limits.n_ctx,
        n_ctx_sequence=limits.n_ctx_sequence,
        n_slots=limits.n_slots,
        speculates=limits.traits.can_speculate,
        n_threads=n_threads,
        exactness=exactness,
        draft_model=inline.title if inline and inline.source == DRAFT_MODEL else None,
        mtp=inline is not None and inline.source == MTP,
        devices=str(model.plan.placement or "chosen by llama.cpp"),
        has_checkpoints=limits.n_checkpoints > 0,
    )


def _lookups(request: Submit, load: Load) -> dict[str, LookupDrafter]:
    drafters: dict[str, LookupDrafter] = {}
    if load.ngram:
        drafters[NGRAM] = NgramDrafter(_NGRAM_BITS)
    if request.prediction:
        drafters[PREDICTION] = PredictionDrafter(request.prediction, request.n_text_prompt)
    return drafters
