"""Loading what drafts inside the engine: a draft model beside the target, or heads of the target."""

import functools
import logging
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from lead.engine.calibration import StepTimer
from lead.engine.commands import DRAFT_MODEL, MTP, Load, LoadDraft
from lead.engine.drafters.model_drafter import ModelDrafter
from lead.engine.drafters.mtp_drafter import MtpDrafter
from lead.engine.drafters.thread_choice import ThreadChoice
from lead.engine.speculation.step_cost import StepCost
from shared.drafting.drafter_options import DrafterOptions
from shared.drafting.drafting_sampler import drafting_sampler
from shared.errors import ModelLoadError, TranslationError
from shared.llama.eagle_heads import EagleHeads
from shared.llama.hidden_states import HeadSpan
from shared.llama.memory_plan import describe_prompt_cache
from shared.llama.model import Model
from shared.llama.mtp_heads import MtpHeads, has_heads, is_heads_file
from shared.llama.span import Span
from shared.llama.vocabulary import Vocabulary
from shared.models.file_kind import is_eagle_file
from shared.prompt_cache import NO_PROMPT_CACHE
from shared.sampling.constrained import GrammarBudget
from shared.sampling.remote_grammar import GrammarServer
from shared.translation.projection import Projection
from shared.translation.stored_pair import stored_pair
from shared.translation.translating_drafter import describe_translation, translating_drafter

log = logging.getLogger("engine")

_STATES_BESIDE_DRAFT = 2
"""A recurrent draft model keeps a state after each draft token, and those before the first ones."""
_REPEATS = 5
_WIDTHS = (1, 2, 4, 8, 32, 128)
"""Of the steps that are timed: drafting, and reading what it has not seen yet."""
_MAX_SECONDS = 3.0


class InlineModel(NamedTuple):
    """A draft model in the engine.

    vocabulary: the target's, with which it drafts. projection: onto that, if its own is another one.
    n_threads: with which it computes at first.
    """

    model: Model
    vocabulary: Vocabulary
    projection: Projection | None
    n_threads: int = 1

    @property
    def name(self) -> str:
        return self.model.vocabulary.info.name


def load_draft_model(load: LoadDraft, target: Model) -> InlineModel:
    """Raises ModelLoadError, also for a model that cannot draft in the target's vocabulary."""
    options = load.options.model_copy(update={"ctx_size": load.options.ctx_size or target.n_ctx})
    model = Model(load.model, options, n_step_checkpoints=load.n_most + _STATES_BESIDE_DRAFT)
    projection = _projection(model.vocabulary, target.vocabulary)
    if _n_most(load, model) < 1:
        raise ModelLoadError(
            f"{load.model} cannot draft: its recurrent states do not fit into memory often enough to take "
            "tokens back; try a smaller --parallel"
        )
    return InlineModel(model, target.vocabulary, projection, choose_threads(load, model))


def make_drafter(
    load: LoadDraft, inline: InlineModel, grammars: GrammarServer, budget: GrammarBudget
) -> ModelDrafter:
    """The inline drafter with this model, for as many sequences as there are slots."""
    model, vocabulary, projection, _ = inline
    n_most = _n_most(load, model)
    options = DrafterOptions.for_cache(
        model.n_ctx,
        n_slots=load.options.parallel,
        n_train=model.vocabulary.info.n_ctx_train,
        n_ahead=n_most,
        n_branches=0,
        prompt_cache=model.prompt_cache,
    )
    stores = model.traits.can_trim and projection is None
    stored = describe_prompt_cache(model.prompt_cache if stores else NO_PROMPT_CACHE)
    log.info("prompt cache of the draft model: %s", stored)
    make_sampler = functools.partial(drafting_sampler, vocabulary, grammars)
    drafter = translating_drafter(model, vocabulary, projection, options, make_sampler, budget)
    return ModelDrafter(DRAFT_MODEL, drafter, n_most, _thread_choice(load, inline))


def _thread_choice(load: LoadDraft, inline: InlineModel) -> ThreadChoice | None:
    """Between those that `choose_threads` has compared; None if there is no choice."""
    if load.fixed_threads or load.options.threads == 1:
        return None
    other = load.options.threads if inline.n_threads == 1 else 1
    return ThreadChoice(inline.model.use_threads, inline.n_threads, other)


def heads_file(load: Load) -> Path | None:
    """The file with the heads of the target, or an EAGLE-3 drafter, if that was named as draft model."""
    if load.draft and (is_heads_file(load.draft.model) or is_eagle_file(load.draft.model)):
        return load.draft.model
    return None


def wants_heads(load: Load) -> bool:
    """Whether the model's heads are to draft; raises ModelLoadError if they should, and it has none."""
    if own_file := heads_file(load):
        return not is_eagle_file(own_file)
    if load.mtp == "off" or load.draft is not None or load.policy == "off":
        return False
    if has_heads(load.model):
        return True
    if load.mtp == "on":
        raise ModelLoadError(f"{load.model} has no heads for further tokens that can be used: --mtp off")
    return False


def make_mtp_drafter(
    model: Model, heads: MtpHeads, n_most: int, grammars: GrammarServer, budget: GrammarBudget
) -> MtpDrafter:
    """The inline drafter with the heads of the target, or an EAGLE-3 drafter, that it has opened."""
    assert model.hidden
    vocabulary = model.vocabulary
    make_sampler = functools.partial(drafting_sampler, vocabulary, grammars)
    return MtpDrafter(
        heads,
        model.hidden,
        make_sampler,
        vocabulary.end_tokens,
        n_most=n_most,
        budget=budget,
        source=DRAFT_MODEL if isinstance(heads, EagleHeads) else MTP,
    )


def calibrate_heads(heads: MtpHeads, cost: StepCost, clock: Callable[[], float] = time.monotonic) -> None:
    """A first T(n) of the heads, whose slot 0 is empty and is left empty."""
    row = np.zeros(heads.n_embd, np.float32)

    def decode(tokens: list[int]) -> None:
        heads.decode([HeadSpan(0, 0, tokens, [row] * len(tokens))])

    _calibrate(StepTimer(decode, lambda: heads.trim(0, 0), heads.n_vocab, clock), cost, heads.n_batch)


def choose_threads(load: LoadDraft, model: Model, clock: Callable[[], float] = time.monotonic) -> int:
    """Have the model, whose slot 0 is empty, use the number of threads with the shortest step.

    A small model's step is over before several threads have met at its barriers.
    """
    n_most = load.options.threads
    if load.fixed_threads or n_most == 1:
        return n_most
    timer = StepTimer.of_target(model, model.n_vocab, clock)
    seconds: dict[int, list[float]] = {1: [], n_most: []}
    for n_threads in [1, n_most] * _REPEATS:
        model.use_threads(n_threads)
        seconds[n_threads].append(timer.seconds(1))
    best = min(seconds, key=lambda n_threads: median(seconds[n_threads]))
    model.use_threads(best)
    return best


def calibrate_drafting(model: Model, cost: StepCost, clock: Callable[[], float] = time.monotonic) -> None:
    """A first T(n) of the draft model, whose slot 0 is empty: it has to be known before it is used."""

    def decode(tokens: list[int]) -> None:
        model.decode([Span(0, 0, tokens, 1)])

    _calibrate(StepTimer(decode, lambda: model.trim(0, 0), model.n_vocab, clock), cost, model.n_batch)


def _calibrate(timer: StepTimer, cost: StepCost, n_batch: int) -> None:
    widths = [width for width in (*[1] * _REPEATS, *_WIDTHS) if width <= n_batch]
    timer.calibrate(cost, widths=widths, n_repeats=1, max_seconds=_MAX_SECONDS)


def _n_most(load: LoadDraft, model: Model) -> int:
    if model.traits.can_trim:
        return load.n_most
    return min(load.n_most, model.traits.n_step_checkpoints - _STATES_BESIDE_DRAFT)


def _projection(ours: Vocabulary, target: Vocabulary) -> Projection | None:
    """None if the draft model has the target's vocabulary; raises ModelLoadError if it cannot translate."""
    draft, lead = ours.identify(), target.identify()
    if draft.fingerprint == lead.fingerprint:
        return None
    try:
        projection = stored_pair(ours, target)
    except TranslationError as error:
        raise ModelLoadError(
            f"the vocabularies differ: the target is {lead.model!r} with {lead.n_tokens} tokens, the draft "
            f"model {draft.model!r} with {draft.n_tokens}; and {error}. Use a smaller model of the "
            f"family of {lead.model!r}"
        ) from error
    log.warning("%s", describe_translation(ours, target, projection))
    return projection
