"""The drafter for a lead: with the draft model's own vocabulary, or with the lead's."""

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass

from back.settings import STATES_BESIDE_DRAFT, BackSettings
from shared.drafting.drafter import Drafter
from shared.drafting.drafter_options import DrafterOptions
from shared.drafting.drafting_sampler import drafting_sampler
from shared.llama.model import Model
from shared.llama.vocabulary import Vocabulary
from shared.protocol import VocabularyId
from shared.sampling.remote_grammar import GrammarServer, TimeBudget
from shared.translation.projection import Projection
from shared.translation.stored_pair import stored_pair
from shared.translation.translating_drafter import describe_translation, translating_drafter

log = logging.getLogger("back")


@dataclass(frozen=True, slots=True)
class DraftingSetup:
    """The vocabulary to name in the hello, and the drafter for it. `make` empties the model's cache.

    `close` it when its drafter is not used any more: it has a process for grammars.
    """

    vocabulary: VocabularyId
    make: Callable[[], Drafter]
    close: Callable[[], None]


def setup_for(settings: BackSettings, model: Model, vocabulary: Vocabulary | None = None) -> DraftingSetup:
    """To draft for a lead with `vocabulary`; None: with that of the draft model.

    Takes seconds for another vocabulary. Raises TranslationError if that is not possible.
    """
    own = model.vocabulary.identify().fingerprint
    if vocabulary is None or vocabulary.identify().fingerprint == own:
        return _setup(settings, model, model.vocabulary, None)
    projection = stored_pair(model.vocabulary, vocabulary)
    log.warning("%s", describe_translation(model.vocabulary, vocabulary, projection))
    return _setup(settings, model, vocabulary, projection)


def n_ahead(settings: BackSettings, model: Model) -> int:
    """How many tokens to draft ahead: each draft token of a recurrent model needs a kept state."""
    if model.traits.can_trim:
        return settings.n_ahead
    return min(settings.n_ahead, model.traits.n_step_checkpoints - STATES_BESIDE_DRAFT)


def _setup(
    settings: BackSettings, model: Model, vocabulary: Vocabulary, projection: Projection | None
) -> DraftingSetup:
    budget = TimeBudget()
    grammars = GrammarServer(vocabulary.info.path, budget)
    make_sampler = functools.partial(drafting_sampler, vocabulary, grammars)

    def make() -> Drafter:
        model.clear()
        options = _options(settings, model)
        return translating_drafter(model, vocabulary, projection, options, make_sampler, budget)

    return DraftingSetup(vocabulary.identify(), make, grammars.close)


def _options(settings: BackSettings, model: Model) -> DrafterOptions:
    return DrafterOptions.for_cache(
        model.n_ctx,
        n_slots=settings.n_parallel,
        n_train=model.vocabulary.info.n_ctx_train,
        n_ahead=n_ahead(settings, model),
        n_branches=settings.n_branches_each,
        prompt_cache=model.prompt_cache,
    )
