"""Whether a grammar may run: it is compiled here as the engine will, under the same limits."""

import time

from lead.settings.limits import RequestLimits
from shared.errors import RequestError
from shared.llama.vocabulary import Vocabulary
from shared.sampling.grammar import GrammarMatcher, prepare

_MAX_COMPILE_SECONDS = 0.5
"""CPU time of this thread: the engine takes as long again, and generates nothing meanwhile."""


def check_size(text: str, limits: RequestLimits, param: str) -> None:
    """Raise RequestError naming `param` for a text that is too large."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limits.max_grammar_bytes:
        raise RequestError(
            f"{param}: {size} bytes of grammar; at most {limits.max_grammar_bytes} are accepted", param
        )


def check_grammar(text: str, vocabulary: Vocabulary, param: str) -> None:
    """Raise RequestError naming `param` unless llguidance takes `text` at a bearable cost.

    Takes as long as compiling the grammar: call it in a thread.
    """
    prepare(vocabulary)  # the first time this takes long, which is not the grammar's fault
    begun = time.thread_time()
    try:
        _take_a_step(GrammarMatcher(text, vocabulary))
    except (ValueError, RequestError) as error:
        raise RequestError(f"{param}: {error}", param) from error
    if time.thread_time() - begun > _MAX_COMPILE_SECONDS:
        raise RequestError(f"{param}: compiling this grammar takes too long", param)


def _take_a_step(matcher: GrammarMatcher) -> None:
    """The limits are those of a step, and many grammars are widest at their beginning."""
    if len(allowed := matcher.allowed()) and matcher.accept(int(allowed[0])):
        matcher.allowed()
