"""A drafter whose model has the vocabulary of the texts, or another one."""

from dataclasses import replace

from shared.drafting.drafter import Drafter
from shared.drafting.drafter_options import DrafterOptions
from shared.drafting.interfaces import MakeSampler
from shared.llama.model import Model
from shared.llama.vocabulary import Vocabulary
from shared.prompt_cache import NO_PROMPT_CACHE
from shared.sampling.constrained import GrammarBudget
from shared.translation.projection import Projection
from shared.translation.translating_model import TranslatingModel
from shared.translation.vocabulary_pair import prefix_of


def translating_drafter(  # noqa: PLR0917 - what a drafter is made of
    model: Model,
    vocabulary: Vocabulary,
    projection: Projection | None,
    options: DrafterOptions,
    make_sampler: MakeSampler,
    budget: GrammarBudget,
) -> Drafter:
    """Drafts tokens of `vocabulary`; projection: onto it, None if it is the model's own.

    The model's slots must be empty.
    """
    if projection is None:
        return Drafter(model, options, make_sampler, vocabulary.end_tokens, budget)
    translating = TranslatingModel(model, projection, prefix_of(model.vocabulary, vocabulary))
    return Drafter(
        translating,
        replace(options, prompt_cache=NO_PROMPT_CACHE),  # only the model's own tokens could be stored
        make_sampler,
        vocabulary.end_tokens,
        budget,
        look_ahead=translating.look_ahead,
    )


def describe_translation(draft: Vocabulary, target: Vocabulary, projection: Projection) -> str:
    """For the log, at the start."""
    return (
        f"translating: {draft.info.name} has another tokenizer than {target.info.name}; "
        f"{100 * projection.share_exact:.0f} % of its tokens are also tokens of that. A draft model with the "
        "same tokenizer is mostly right more often"
    )
