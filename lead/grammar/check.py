"""Is a grammar one that llama.cpp can run, and not one that runs llama.cpp into the ground?

Its own parser recurses on parentheses, its check for left recursion takes exponential time and misses
some, and repetitions copy their items: so everything is measured here first, without native code.
"""

from lead.grammar.gbnf import GrammarError, parse_gbnf
from lead.grammar.shape import check_shape
from lead.settings.limits import RequestLimits
from shared.errors import RequestError
from shared.llama.grammar import can_parse


def check_grammar(text: str, limits: RequestLimits, param: str = "grammar") -> None:
    """Raise RequestError naming `param` unless `text` is a grammar in GBNF with a rule `root`.

    Tokens by name (`<|end|>`) are known to be tokens only by the engine's vocabulary.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limits.max_grammar_bytes:
        raise RequestError(
            f"{param}: {size} bytes of grammar; at most {limits.max_grammar_bytes} are taken", param
        )
    try:
        grammar = parse_gbnf(text, limits.max_grammar_nesting)
        check_shape(grammar)
    except GrammarError as error:
        raise RequestError(f"{param}: {error}", param) from error
    if not grammar.names_tokens and not can_parse(text):
        raise RequestError(f"{param}: llama.cpp cannot parse this grammar", param)
