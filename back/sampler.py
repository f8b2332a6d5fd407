"""The sampler of a sequence that is drafted for."""

import logging

from shared.llama.chain import make_sampler
from shared.llama.vocabulary import Vocabulary
from shared.sampling import Sampler, SamplingParameters

log = logging.getLogger("back")


def drafting_sampler(parameters: SamplingParameters, vocabulary: Vocabulary, history: list[int]) -> Sampler:
    """The lead's choices with this model's logits; without a grammar that this llama.cpp cannot read."""
    try:
        return make_sampler(parameters, vocabulary, history)
    except ValueError as error:
        log.info("drafting without the grammar of a request: %s", error)
        return make_sampler(parameters.model_copy(update={"grammar": None}), vocabulary, history)
