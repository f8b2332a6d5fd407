"""The sampler for a request's parameters."""

from collections.abc import Callable

from shared.llama.vocabulary import Vocabulary
from shared.sampling.constrained import ConstrainedSampler, Constraint
from shared.sampling.filters import NativeFilters
from shared.sampling.grammar import FollowedGrammar, GrammarMatcher
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler, needs_filters

Follow = Callable[[str], Constraint]
"""The beginning of a text under a grammar."""


def make_sampler(
    parameters: SamplingParameters,
    vocabulary: Vocabulary,
    history: list[int],
    like: Sampler | None = None,
    follow: Follow | None = None,
) -> Sampler:
    """The sampler of one sequence whose tokens so far are `history`.

    like: a sampler with the same parameters, whose text has a common prefix with `history`: its grammar need
    not read that again. follow: `GrammarServer.follow`; without it grammars are followed in this process,
    whatever that costs, and a ValueError is raised for one that cannot be compiled.
    """
    end_tokens, filters = vocabulary.end_tokens, None
    if needs_filters(parameters):
        filters = NativeFilters(parameters, vocabulary.n_tokens, end_tokens, vocabulary)
    if parameters.grammar is None:
        return Sampler(parameters, filters, history)
    beginning: Constraint | ConstrainedSampler
    if isinstance(like, ConstrainedSampler):
        beginning = like
    elif follow is not None:
        beginning = follow(parameters.grammar)
    else:
        beginning = FollowedGrammar(GrammarMatcher(parameters.grammar, vocabulary))
    return ConstrainedSampler(parameters, filters, history, beginning, min(end_tokens, default=0))
