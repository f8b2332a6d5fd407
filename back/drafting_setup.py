"""The drafter for a lead: with the draft model's own vocabulary, or with the lead's."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from back.settings import BackSettings
from shared.drafting.drafter import Drafter
from shared.llama.model import Model
from shared.llama.vocabulary import Vocabulary
from shared.protocol import VocabularyId
from shared.sampling.remote_grammar import GrammarServer, TimeBudget
from shared.translation.drafter_maker import DrafterMaker

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

    Takes seconds for another vocabulary.
    """
    maker = DrafterMaker(model, vocabulary or model.vocabulary, log)
    budget = TimeBudget()
    grammars = GrammarServer(maker.vocabulary.info.path, budget)

    def make() -> Drafter:
        model.clear()
        return maker.make(
            grammars,
            budget,
            n_slots=settings.n_parallel,
            n_ahead=settings.n_ahead,
            n_branches=settings.n_branches_each,
        )

    return DraftingSetup(maker.vocabulary.identify(), make, grammars.close)
