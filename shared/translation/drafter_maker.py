"""Makes drafters of a model: for texts in its own vocabulary, or in another one."""

import functools
import logging
from dataclasses import replace

from shared.drafting.drafter import Drafter
from shared.drafting.drafter_options import N_FURTHER_STATES, DrafterOptions
from shared.llama.model import Model
from shared.llama.vocabulary import Vocabulary
from shared.prompt_cache import NO_PROMPT_CACHE
from shared.sampling.factory import drafting_sampler
from shared.sampling.grammar_budget import GrammarBudget
from shared.sampling.remote_grammar import GrammarServer
from shared.translation.projection import Projection
from shared.translation.stored_pair import stored_pair
from shared.translation.translating_model import TranslatingModel
from shared.translation.vocabulary_pair import prefix_of


class DrafterMaker:
    """Makes drafters of one model, for texts in one vocabulary."""

    def __init__(self, model: Model, vocabulary: Vocabulary, log: logging.Logger) -> None:
        """Takes seconds if that is not the model's own."""
        self.model = model
        self.vocabulary = vocabulary
        self._projection: Projection | None = None
        if vocabulary.identify().fingerprint != model.vocabulary.identify().fingerprint:
            self._projection = stored_pair(model.vocabulary, vocabulary)
            log.warning("%s", describe_translation(model.vocabulary, vocabulary, self._projection))

    @property
    def translates(self) -> bool:
        """Whether the vocabulary is not the model's own: then texts are not stored, not being its tokens."""
        return self._projection is not None

    def make(
        self,
        grammars: GrammarServer,
        budget: GrammarBudget,
        *,
        n_slots: int,
        n_ahead: int,
        n_branches: int = 0,
    ) -> Drafter:
        """A drafter for `n_slots` sequences at the same time; the model's slots must be empty."""
        model, vocabulary = self.model, self.vocabulary
        options = DrafterOptions.for_cache(
            model.n_ctx,
            n_slots=n_slots,
            n_train=model.vocabulary.info.n_ctx_train,
            n_ahead=most_ahead(model, n_ahead),
            n_branches=n_branches,
            prompt_cache=model.prompt_cache,
        )
        make_sampler = functools.partial(drafting_sampler, vocabulary, grammars)
        if self._projection is None:
            return Drafter(
                model, options, make_sampler, vocabulary.end_tokens, budget, interrupt=model.interrupt()
            )
        translating = TranslatingModel(model, self._projection, prefix_of(model.vocabulary, vocabulary))
        return Drafter(
            translating,
            replace(options, prompt_cache=NO_PROMPT_CACHE),
            make_sampler,
            vocabulary.end_tokens,
            budget,
            look_ahead=translating.look_ahead,
        )


def most_ahead(model: Model, n_wanted: int) -> int:
    """How many tokens it can draft ahead: each draft token of a recurrent model needs a kept state."""
    traits = model.traits
    return n_wanted if traits.can_trim else min(n_wanted, traits.n_step_checkpoints - N_FURTHER_STATES)


def describe_translation(draft: Vocabulary, target: Vocabulary, projection: Projection) -> str:
    """For the log, at the start."""
    return (
        f"translating: {draft.info.name} has another tokenizer than {target.info.name}; "
        f"{100 * projection.share_exact:.0f} % of its tokens are also tokens of that. A draft model with the "
        "same tokenizer is mostly right more often"
    )
