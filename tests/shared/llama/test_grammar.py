import numpy as np
import pytest

from shared.errors import GrammarTooSlowError
from shared.llama.grammar import NativeGrammar, can_parse


def ids(vocabulary, text):
    return vocabulary.tokenize(text, add_special=False, parse_special=False)


def allowed(grammar, *tokens):
    return grammar.allowed(np.array(tokens)).tolist()


def test_only_what_the_grammar_has_next_is_allowed(vocabulary):
    grammar = NativeGrammar('root ::= "a" "b"', vocabulary)
    (a,), (b,) = ids(vocabulary, "a"), ids(vocabulary, "b")
    assert allowed(grammar, a, b) == [True, False]
    assert grammar.accept(a)
    assert allowed(grammar, a, b) == [False, True]


def test_an_end_token_is_allowed_where_the_text_may_end(vocabulary):
    grammar = NativeGrammar('root ::= "a" "b"?', vocabulary)
    end = min(vocabulary.end_tokens)
    assert allowed(grammar, end) == [False]
    grammar.accept(ids(vocabulary, "a")[0])
    assert allowed(grammar, end) == [True]


def test_a_token_that_is_not_allowed_changes_nothing(vocabulary):
    grammar = NativeGrammar('root ::= "a"', vocabulary)
    (a,), (b,) = ids(vocabulary, "a"), ids(vocabulary, "b")
    assert not grammar.accept(b)
    assert not grammar.accept(min(vocabulary.end_tokens))
    assert grammar.accept(a)


def test_a_copy_goes_its_own_way(vocabulary):
    grammar = NativeGrammar('root ::= "a" "b"', vocabulary)
    (a,), (b,) = ids(vocabulary, "a"), ids(vocabulary, "b")
    grammar.accept(a)
    copy = grammar.copy()
    copy.accept(b)
    assert allowed(copy, b) == [False]
    assert allowed(grammar, b) == [True]


def test_characters_may_be_split_over_tokens(vocabulary):
    grammar = NativeGrammar('root ::= "😀"', vocabulary)
    tokens = ids(vocabulary, "😀")
    assert len(tokens) > 1
    assert all(grammar.accept(token) for token in tokens)


def test_what_is_no_grammar_is_an_error(vocabulary, capfd):
    assert not can_parse("root ::= (")
    with pytest.raises(ValueError, match="cannot parse"):
        NativeGrammar("root ::= (", vocabulary)
    capfd.readouterr()  # llama.cpp writes what it could not parse


def test_where_the_ways_to_read_a_text_multiply_it_ends(vocabulary, monkeypatch):
    monkeypatch.setattr("shared.llama.grammar._MOST_SECONDS", 0.01)
    grammar = NativeGrammar('root ::= s\ns ::= "a" s "b" | "a" s "c" | "a"', vocabulary)
    (a,) = ids(vocabulary, "a")
    with pytest.raises(GrammarTooSlowError):
        all(grammar.accept(a) for _ in range(13))
