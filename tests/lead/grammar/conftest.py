import numpy as np
import pytest

from shared.llama.grammar import NativeGrammar


@pytest.fixture(scope="session")
def accepts(vocabulary):
    """Whether llama.cpp, with this grammar, lets a model write this text and end there."""

    def accepts(grammar: str, text: str) -> bool:
        native = NativeGrammar(grammar, vocabulary)
        tokens = vocabulary.tokenize(text, add_special=False, parse_special=False)
        ends = np.array(sorted(vocabulary.end_tokens))
        return all(native.accept(token) for token in tokens) and bool(native.allowed(ends).all())

    return accepts
