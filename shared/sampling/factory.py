"""Makes the sampler for a request's parameters, in the lead and in drafters."""

import functools
from collections.abc import Callable

from shared.llama.vocabulary import Vocabulary
from shared.sampling.call_grammars import CallGrammars
from shared.sampling.constrained import ConstrainedSampler, Constraint
from shared.sampling.filters import NativeFilters
from shared.sampling.followed_calls import FollowedCalls, FreeUntilCall
from shared.sampling.grammar import FollowedGrammar, GrammarMatcher
from shared.sampling.parameters import SamplingParameters
from shared.sampling.remote_grammar import GrammarServer
from shared.sampling.sampler import Sampler, needs_filters
from shared.sandbox import CAN_FORK

_WINDOW = 1024
"""The number of tokens that penalties and DRY look back in drafters. Each rejected draft and each side branch
reads this many tokens again, in half a millisecond. Missing an older repetition may cost a draft token.
"""

Follow = Callable[[str | CallGrammars], Constraint]
"""Returns the constraint at the beginning of a text under a grammar, or with calls under grammars."""


def make_sampler(
    parameters: SamplingParameters,
    vocabulary: Vocabulary,
    history: list[int],
    like: Sampler | None = None,
    follow: Follow | None = None,
) -> Sampler:
    """Return the sampler of a sequence whose tokens so far are `history`.

    like: a sampler with the same parameters, whose text has a common prefix with `history`; its grammar need
    not read the prefix again. follow: `GrammarServer.follow`. Without it, grammars are followed in this
    process, however long that takes, and a grammar that cannot be compiled raises ValueError.
    """
    end_tokens, filters = vocabulary.end_tokens, None
    if needs_filters(parameters):
        filters = NativeFilters(parameters, vocabulary.n_tokens, end_tokens, vocabulary)
    if not parameters.is_constrained:
        return Sampler(parameters, filters, history)
    beginning: Constraint | ConstrainedSampler
    if isinstance(like, ConstrainedSampler):
        beginning = like
    else:
        beginning = _beginning(parameters, vocabulary, follow or functools.partial(_follow_here, vocabulary))
    return ConstrainedSampler(parameters, filters, history, beginning, min(end_tokens, default=0))


def _beginning(parameters: SamplingParameters, vocabulary: Vocabulary, follow: Follow) -> Constraint:
    if parameters.grammar is not None:
        return follow(parameters.grammar)
    assert parameters.calls is not None, "one of the two is given"
    return FreeUntilCall(parameters.calls, vocabulary, follow)


def _follow_here(vocabulary: Vocabulary, grammar: str | CallGrammars) -> Constraint:
    if isinstance(grammar, CallGrammars):
        return FollowedCalls(grammar, vocabulary)
    return FollowedGrammar(GrammarMatcher(grammar, vocabulary))


def drafting_sampler(
    vocabulary: Vocabulary,
    grammars: GrammarServer,
    parameters: SamplingParameters,
    history: list[int],
    like: Sampler | None = None,
    /,
) -> Sampler:
    """Return a sampler that chooses from a draft model's logits as the lead does from the target's.

    A grammar that cannot be compiled here is ignored, and so are all grammars on systems without fork. The
    lead then rejects the drafts that violate them.
    """
    if not CAN_FORK:
        parameters = parameters.model_copy(update={"grammar": None, "calls": None})
    if parameters.n_remembered > _WINDOW:
        windows = {
            "repeat_last_n": min(parameters.repeat_last_n, _WINDOW),
            "dry_penalty_last_n": min(parameters.dry_window, _WINDOW),
        }
        parameters = parameters.model_copy(update=windows)
    follow = functools.partial(grammars.follow, is_optional=True)
    return make_sampler(parameters, vocabulary, history, like, follow)
