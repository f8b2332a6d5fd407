"""The sampler of a sequence that is drafted for."""

import logging

from shared.llama.vocabulary import Vocabulary
from shared.sampling.factory import make_sampler
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler

log = logging.getLogger("back")

_DRY_WINDOW = 1024
"""Each side branch rescans this many tokens. Missing an older repetition may cost a draft token."""


def drafting_sampler(
    vocabulary: Vocabulary,
    parameters: SamplingParameters,
    history: list[int],
    like: Sampler | None = None,
    /,
) -> Sampler:
    """The lead's choices with this model's logits; without a grammar that cannot be compiled here."""
    if parameters.dry_window > _DRY_WINDOW:
        parameters = parameters.model_copy(update={"dry_penalty_last_n": _DRY_WINDOW})
    try:
        return make_sampler(parameters, vocabulary, history, like)
    except ValueError as error:
        log.info("drafting without the grammar of a request: %s", error)
        return make_sampler(parameters.model_copy(update={"grammar": None}), vocabulary, history)
