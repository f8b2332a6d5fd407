import pytest

from shared.sampling.grammar import GrammarMatcher


@pytest.fixture(scope="session")
def accepts(vocabulary):
    """Whether a model may write this text under this grammar, and end there."""

    def accepts(grammar: str, text: str) -> bool:
        matcher = GrammarMatcher(grammar, vocabulary)
        tokens = vocabulary.tokenize(text, add_special=False, parse_special=True)
        return all(matcher.accept(token) for token in tokens) and matcher.allows(min(vocabulary.end_tokens))

    return accepts
