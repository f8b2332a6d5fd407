"""Loads the drafters that run inside the engine: a draft model, or the source that a ring has planned."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from lead.engine.calibration import StepTimer
from lead.engine.commands import DRAFT_MODEL
from lead.engine.drafters.model_drafter import ModelDrafter, ThreadChoice
from lead.engine.inline_sources import InlineSource, PlannedSource, calibrate, planned_source
from lead.engine.load import Load, LoadDraft
from lead.rings.table import RINGS
from shared.drafting.drafter_maker import DrafterMaker, drafter_maker, max_ahead
from shared.drafting.drafter_options import N_FURTHER_STATES
from shared.errors import ModelLoadError
from shared.llama import devices
from shared.llama.model import Model
from shared.llama.placement import CPU
from shared.llama.span import Span
from shared.memory.context_choice import choose_n_ctx
from shared.memory.model_outline import ModelOutline
from shared.memory.plan_memory import plan_memory
from shared.memory.texts_kept import describe_prompt_cache
from shared.model_files.file_kind import size_of
from shared.sampling.grammar_budget import GrammarBudget
from shared.sampling.remote_grammar import GrammarServer
from shared.step_cost import StepCost
from shared.terminal import size_text
from shared.text_store import NO_PROMPT_CACHE

log = logging.getLogger("engine")

_REPEATS = 5


@dataclass(frozen=True, slots=True)
class InlineModel:
    """A draft model loaded in the engine process. n_threads: the number of threads it starts with."""

    load: LoadDraft
    maker: DrafterMaker
    n_threads: int = 1
    source = DRAFT_MODEL
    reads_target = False

    @property
    def model(self) -> Model:
        return self.maker.model

    @property
    def title(self) -> str:
        return self.model.vocabulary.info.name

    def drafter(self, grammars: GrammarServer, budget: GrammarBudget) -> ModelDrafter:
        model, load = self.model, self.load
        stores = model.traits.can_trim and not self.maker.translates
        stored = describe_prompt_cache(model.prompt_cache if stores else NO_PROMPT_CACHE)
        log.info("prompt cache of the draft model: %s", stored)
        n_max = max_ahead(model, load.n_max)
        drafter = self.maker.make(grammars, budget, n_slots=load.options.parallel, n_ahead=n_max)
        return ModelDrafter(self.source, drafter, n_max, self._thread_choice())

    def calibrate(self, cost: StepCost, clock: Callable[[], float] = time.monotonic) -> None:
        model = self.model

        def decode(tokens: list[int]) -> None:
            model.decode([Span(0, 0, tokens, 1)])

        timer = StepTimer(
            decode, lambda: model.trim(0, 0), model.n_vocab, clock, is_offloaded=model.is_offloaded
        )
        calibrate(timer, cost, model.n_batch)

    def describe(self, token_seconds: float) -> str:
        return (
            f"draft model: {self.title}, {self.n_threads} thread{'' if self.n_threads == 1 else 's'}, "
            f"{1000 * token_seconds:.2f} ms for a token; memory: "
            f"{size_text(self.model.vocabulary.info.size)} for weights, {self.model.plan.size}"
            f"; devices: {self.model.plan.placement or 'chosen by llama.cpp'}"
        )

    def _thread_choice(self) -> ThreadChoice | None:
        """Return the choice between the two thread numbers that `choose_threads` compared; None if they are
        equal.
        """
        if self.load.fixed_threads or self.load.options.threads == 1:
            return None
        other = self.load.options.threads if self.n_threads == 1 else 1
        return ThreadChoice(self.model.use_threads, self.n_threads, other)


def load_inline_sources(load: Load, target: Model, planned: PlannedSource | None) -> list[InlineSource]:
    """Return the sources that draft in the engine: the draft model, then `planned`. Raises ModelLoadError."""
    sources: list[InlineSource] = []
    if load.draft and not (planned and planned.is_draft_model):
        sources.append(load_draft_model(load.draft, target))
    if planned and target.traits.can_speculate:
        sources.append(planned.open(target))
    return sources


def has_draft_model(load: Load) -> bool:
    """Return whether `load.draft` is a complete model, which a back could load as well.

    Returns False for a file that only a ring opens, such as a drafter's heads.
    """
    planned = planned_source(load) if load.draft else None
    return load.draft is not None and not (planned and planned.is_draft_model)


def place_draft_model(load: Load) -> Load:
    """Return `load` with devices chosen for the draft model, and memory of the model's size reserved there.

    The draft model is placed first, as it is smaller and read more often. The device names in `load.taken`,
    for data of other processes, are also resolved here. Raises ModelLoadError.
    """
    if load.taken:
        load = load.model_copy(update={"taken": devices.located(load.taken)})
    draft = load.draft
    if not draft or load.rpc:
        return load
    # Heads read the last layer's output, so they are on its device.
    if not (has_draft_model(load) and devices.has_gpu()):
        gpus = devices.describe(devices.chosen(load.options) or [])
        n_bytes = size_of(draft.model)
        more = Counter({gpus[-1].name if gpus else CPU: n_bytes})
        return load.model_copy(update={"taken": Counter(load.taken) + more})
    with ModelOutline.load(load.model, load.options.on_cpu()) as target:
        n_ctx = draft.options.ctx_size or choose_n_ctx(load.options, target.n_ctx_train)
    options = draft.options.model_copy(update={"ctx_size": n_ctx})
    plan = plan_memory(draft.model, options, n_step_checkpoints=draft.n_max + N_FURTHER_STATES)
    placement = plan.placement
    if placement is None:
        return load
    placed = draft.model_copy(update={"options": placement.options(draft.options)})
    taken = {place: placement.used(place) for place in (CPU, *(each.name for each in placement.devices))}
    return load.model_copy(update={"draft": placed, "taken": Counter(load.taken) + Counter(taken)})


def load_draft_model(load: LoadDraft, target: Model) -> InlineModel:
    """Load the draft model; raises ModelLoadError if it cannot be loaded or cannot draft a single token."""
    options = load.options.model_copy(update={"ctx_size": load.options.ctx_size or target.n_ctx})
    taken = {CPU: target.plan.placement.host_weights} if target.plan.placement else {}
    n_states = load.n_max + N_FURTHER_STATES
    model = Model(plan_memory(load.model, options, n_step_checkpoints=n_states, taken=taken))
    maker = drafter_maker(model, target.vocabulary, RINGS, log)
    if max_ahead(model, load.n_max) < 1:
        raise ModelLoadError(
            f"{load.model} cannot draft because its recurrent states need too much memory. Lower --parallel"
        )
    return InlineModel(load, maker, choose_threads(load, model))


def choose_threads(load: LoadDraft, model: Model, clock: Callable[[], float] = time.monotonic) -> int:
    """Set the model's number of threads to the faster of 1 and `load.options.threads`, and return it.

    Slot 0 must be empty. With several threads, a small model spends most of a step waiting at barriers.
    """
    n_max = load.options.threads
    if load.fixed_threads or n_max == 1:
        return n_max
    timer = StepTimer.of_target(model, model.n_vocab, clock)
    seconds: dict[int, list[float]] = {1: [], n_max: []}
    for n_threads in [1, n_max] * _REPEATS:
        model.use_threads(n_threads)
        seconds[n_threads].append(timer.seconds(1))
    best = min(seconds, key=lambda n_threads: median(seconds[n_threads]))
    model.use_threads(best)
    return best
