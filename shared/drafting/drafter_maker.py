"""Makes drafters of a model, for texts in its own vocabulary or, with a ring's help, in another one.

A ring plugs in at the seam `other_vocabulary`: a module with a function `translating_maker`.
"""

import functools
import logging
from collections.abc import Iterable

from shared.drafting.drafter import Drafter
from shared.drafting.drafter_options import N_FURTHER_STATES, DrafterOptions
from shared.drafting.interfaces import MakeSampler
from shared.errors import ModelLoadError
from shared.llama.model import Model
from shared.llama.vocabulary import Vocabulary
from shared.sampling.factory import drafting_sampler
from shared.sampling.grammar_budget import GrammarBudget
from shared.sampling.remote_grammar import GrammarServer
from shared.seams import plugged


class DrafterMaker:
    """Makes drafters of one model, for texts in one vocabulary."""

    translates = False
    """True if the vocabulary is not the model's own. Texts are then not stored, because tokens differ."""

    def __init__(self, model: Model, vocabulary: Vocabulary) -> None:
        self.model = model
        self.vocabulary = vocabulary

    def make(
        self,
        grammars: GrammarServer,
        budget: GrammarBudget,
        *,
        n_slots: int,
        n_ahead: int,
        n_branches: int = 0,
    ) -> Drafter:
        """Make a drafter for `n_slots` concurrent sequences; the model's slots must be empty."""
        model = self.model
        options = DrafterOptions.for_cache(
            model.n_ctx,
            n_slots=n_slots,
            n_train=model.vocabulary.info.n_ctx_train,
            n_ahead=max_ahead(model, n_ahead),
            n_branches=n_branches,
            prompt_cache=model.prompt_cache,
        )
        make_sampler = functools.partial(drafting_sampler, self.vocabulary, grammars)
        return self._drafter(options, make_sampler, budget)

    def _drafter(self, options: DrafterOptions, make_sampler: MakeSampler, budget: GrammarBudget) -> Drafter:
        model = self.model
        end_tokens = self.vocabulary.end_tokens
        return Drafter(model, options, make_sampler, end_tokens, budget, interrupt=model.interrupt())


def drafter_maker(
    model: Model, vocabulary: Vocabulary, rings: Iterable[str], log: logging.Logger
) -> DrafterMaker:
    """Return a maker of drafters for texts in `vocabulary`; takes seconds if it is not the model's own.

    rings: the rings of the program. Raises ModelLoadError if translation is needed and no ring provides it.
    """
    if vocabulary.identify().fingerprint == model.vocabulary.identify().fingerprint:
        return DrafterMaker(model, vocabulary)
    for ring in plugged(rings, "other_vocabulary"):
        maker: DrafterMaker = ring.translating_maker(model, vocabulary, log)
        return maker
    raise ModelLoadError(
        f"{model.vocabulary.info.name} and {vocabulary.info.name} have different tokenizers, and "
        "translation is not installed. Use a draft model with the same tokenizer"
    )


def max_ahead(model: Model, n_wanted: int) -> int:
    """Return the number of tokens that a model can draft ahead, at most `n_wanted`.

    A recurrent model needs a stored state for each draft token.
    """
    traits = model.traits
    return n_wanted if traits.can_trim else min(n_wanted, traits.n_step_checkpoints - N_FURTHER_STATES)
