"""The ring's module for the seam `other_vocabulary`: drafters for texts in a vocabulary other than
the model's.
"""

import logging
from dataclasses import replace

from shared.drafting.drafter import Drafter
from shared.drafting.drafter_maker import DrafterMaker
from shared.drafting.drafter_options import DrafterOptions
from shared.drafting.interfaces import MakeSampler
from shared.llama.model import Model
from shared.llama.vocabulary import Vocabulary
from shared.sampling.grammar_budget import GrammarBudget
from shared.text_store import NO_PROMPT_CACHE
from shared.translation.projection import Projection
from shared.translation.stored_pair import stored_pair
from shared.translation.translating_model import TranslatingModel
from shared.translation.vocabulary_pair import prefix_of


class TranslatingMaker(DrafterMaker):
    """Makes drafters with one model, for texts in a vocabulary other than the model's."""

    translates = True

    def __init__(self, model: Model, vocabulary: Vocabulary, projection: Projection) -> None:
        super().__init__(model, vocabulary)
        self._projection = projection

    def _drafter(self, options: DrafterOptions, make_sampler: MakeSampler, budget: GrammarBudget) -> Drafter:
        prefix = prefix_of(self.model.vocabulary, self.vocabulary)
        translating = TranslatingModel(self.model, self._projection, prefix)
        return Drafter(
            translating,
            replace(options, prompt_cache=NO_PROMPT_CACHE),
            make_sampler,
            self.vocabulary.end_tokens,
            budget,
            look_ahead=translating.look_ahead,
        )


def translating_maker(model: Model, vocabulary: Vocabulary, log: logging.Logger) -> TranslatingMaker:
    """Return a maker of drafters that translate the model's tokens to `vocabulary`. Takes seconds."""
    projection = stored_pair(model.vocabulary, vocabulary)
    log.warning("%s", describe_translation(model.vocabulary, vocabulary, projection))
    return TranslatingMaker(model, vocabulary, projection)


def describe_translation(draft: Vocabulary, target: Vocabulary, projection: Projection) -> str:
    """Return a sentence about the translation, for the log at the start."""
    return (
        f"translating: {draft.info.name} and {target.info.name} have different tokenizers; "
        f"{100 * projection.share_exact:.0f} % of the draft model's tokens exist in both. A draft model "
        "with the same tokenizer usually has a higher acceptance"
    )
