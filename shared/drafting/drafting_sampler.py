"""The sampler of a sequence that is drafted for."""

import functools

from shared.llama.vocabulary import Vocabulary
from shared.sampling.factory import make_sampler
from shared.sampling.parameters import SamplingParameters
from shared.sampling.remote_grammar import GrammarServer
from shared.sampling.sampler import Sampler
from shared.sandbox import CAN_FORK

_WINDOW = 1024
"""How far penalties and DRY look back. Each rejected draft and each side branch reads this many
tokens again, in half a millisecond. Missing an older repetition may cost a draft token."""


def drafting_sampler(
    vocabulary: Vocabulary,
    grammars: GrammarServer,
    parameters: SamplingParameters,
    history: list[int],
    like: Sampler | None = None,
    /,
) -> Sampler:
    """The lead's choices with this model's logits; without a grammar that cannot be compiled here.

    Where no process can follow grammars, drafts break them more often, which the lead notices.
    """
    if not CAN_FORK:
        parameters = parameters.model_copy(update={"grammar": None})
    if parameters.n_remembered > _WINDOW:
        windows = {
            "repeat_last_n": min(parameters.repeat_last_n, _WINDOW),
            "dry_penalty_last_n": min(parameters.dry_window, _WINDOW),
        }
        parameters = parameters.model_copy(update=windows)
    follow = functools.partial(grammars.follow, is_optional=True)
    return make_sampler(parameters, vocabulary, history, like, follow)
