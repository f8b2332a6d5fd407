import random

import pytest

from shared.errors import RequestError
from shared.sampling.grammar import GrammarMatcher

HEADER = '%llguidance {"no_forcing": true}\n'
LISTS = HEADER + 'start: "[" (item ("," item)*)? "]"\nitem: /[a-zé😀]{0,9}/ | start'


def ids(vocabulary, text):
    return vocabulary.tokenize(text, add_special=False, parse_special=False)


def allows(matcher, *tokens):
    return [matcher.allows(token) for token in tokens]


def test_only_what_the_grammar_has_next_is_allowed(vocabulary):
    matcher = GrammarMatcher('start: "a" "b"', vocabulary)
    a, b = ids(vocabulary, "a")[0], ids(vocabulary, "b")[0]
    assert allows(matcher, a, b) == [True, False]
    assert matcher.accept(a)
    assert allows(matcher, a, b) == [False, True]


def test_the_end_is_allowed_where_the_text_may_end_and_ends_it_only_once(vocabulary):
    matcher = GrammarMatcher('start: "a" "b"?', vocabulary)
    end = min(vocabulary.end_tokens)
    assert not matcher.allows(end)
    matcher.accept(ids(vocabulary, "a")[0])
    assert matcher.allows(end)
    assert set(matcher.allowed()) == {*vocabulary.end_tokens, ids(vocabulary, "b")[0]}
    assert not matcher.accept(end)


def test_a_token_that_is_not_allowed_changes_nothing(vocabulary):
    matcher = GrammarMatcher('start: "a"', vocabulary)
    a, b = ids(vocabulary, "a")[0], ids(vocabulary, "b")[0]
    assert not matcher.accept(b)
    assert matcher.accept(a)


def test_characters_of_several_tokens_are_followed_byte_by_byte(vocabulary):
    matcher = GrammarMatcher('start: "😀"', vocabulary)
    tokens = ids(vocabulary, "😀")
    assert len(tokens) > 1
    assert all(matcher.accept(token) for token in tokens)


@pytest.mark.parametrize("seed", range(4))
def test_asking_for_one_token_and_for_all_gives_the_same_answers(vocabulary, seed):
    """The mask is not forced: choosing among the allowed tokens samples the model's own distribution."""
    rng = random.Random(seed)
    matcher = GrammarMatcher(LISTS, vocabulary)
    for _ in range(8):
        allowed = matcher.allowed().tolist()
        assert allowed == [token for token in range(vocabulary.n_tokens) if matcher.allows(token)]
        token = rng.choice(allowed)
        if not matcher.accept(token):
            return


@pytest.mark.parametrize("seed", range(10))
def test_after_a_rollback_the_state_is_that_of_the_shorter_text(vocabulary, seed):
    rng = random.Random(seed)
    matcher, states = GrammarMatcher(LISTS, vocabulary), []
    while len(states) < 30:
        states.append(matcher.allowed().tolist())
        if not matcher.accept(rng.choice(states[-1])):
            break
    n_back = rng.randrange(len(states))
    matcher.rollback(n_back)
    assert matcher.allowed().tolist() == states[len(states) - 1 - n_back if n_back else -1]


def test_a_text_that_can_be_read_in_too_many_ways_is_an_error(vocabulary):
    wide = " | ".join(f"r{i}" for i in range(3000))
    rules = "\n".join(f'r{i}: "a" "{i}"' for i in range(3000))
    matcher = GrammarMatcher(f'{HEADER}start: "x" ({wide})\n{rules}', vocabulary)
    with pytest.raises(RequestError, match=r"any further: .*2000") as caught:
        matcher.accept(ids(vocabulary, "x")[0])
    assert caught.value.param == "grammar"
