import pytest

from shared.errors import RequestError
from shared.sampling.call_grammars import CallGrammars
from shared.sampling.followed_calls import FollowedCalls, FreeUntilCall

NUMBER = '%llguidance {"no_forcing": true}\nstart: / ?[0-9]+/ "!"\n'
CALLS = CallGrammars(r"<call>(?P<name>add|sub|odd):", {"add": NUMBER, "sub": NUMBER, "odd": "no grammar"})


def here(vocabulary):
    return FollowedCalls(CALLS, vocabulary)


def asleep(vocabulary):
    return FreeUntilCall(CALLS, vocabulary, lambda calls: FollowedCalls(calls, vocabulary))


@pytest.fixture(params=[here, asleep])
def constraint(request, vocabulary):
    return request.param(vocabulary)


@pytest.fixture
def ids(vocabulary):
    return lambda text: vocabulary.tokenize(text, add_special=False, parse_special=False)


@pytest.fixture
def follows(ids):
    """Return whether a text may come next. Its tokens are accepted up to the first that may not come."""

    def follows(constraint, text):
        for token in ids(text):
            if constraint.allows([token]) != [True]:
                return False
            constraint.accept(token)
        return True

    return follows


def test_arguments_follow_the_grammar_of_their_tool(constraint, follows):
    assert follows(constraint, "Well, <call>add: 12!")
    assert not follows(constraint, "<call>sub: a")


def test_text_outside_calls_is_free(constraint, follows, vocabulary):
    assert follows(constraint, "<call>, <call>mul: a and add: b <call>add: 12! add: c")
    assert constraint.allows([*vocabulary.special_tokens.values()]) == [True] * len(vocabulary.special_tokens)


def test_a_call_cannot_end_before_its_grammar_does(constraint, follows, vocabulary):
    end = min(vocabulary.end_tokens)
    assert follows(constraint, "<call>add: 12")
    assert constraint.allows([end]) == [False]
    assert follows(constraint, "!")
    assert constraint.allows([end]) == [True]


def test_a_call_whose_grammar_cannot_be_compiled_is_free(constraint, follows):
    assert follows(constraint, "<call>odd: a <call>")
    assert not follows(constraint, "add: a")


def test_a_token_may_end_a_call_and_go_on(vocabulary, ids, follows):
    (token,) = ids('!"')
    constraint = here(vocabulary)
    assert follows(constraint, "<call>add: 12")
    assert constraint.allows([token]) == [True]
    constraint.accept(token)
    assert follows(constraint, "free <call>sub: 1")
    assert not follows(constraint, "a")


def test_a_token_may_begin_a_call_and_go_on_in_a_wrong_way(vocabulary, ids, follows):
    (token,) = ids("):")
    constraint = FollowedCalls(CallGrammars(r"<call>(?P<name>add)\)", {"add": NUMBER}), vocabulary)
    assert follows(constraint, "<call>add")
    assert constraint.allows([token]) == [False]
    assert {vocabulary.piece(each) for each in constraint.allowed()} == {b")"}


def test_inside_a_call_what_is_allowed_is_of_the_grammar(constraint, follows, vocabulary):
    assert follows(constraint, "<call>add: 1")
    assert constraint.allows([0]) == [False]
    assert {vocabulary.piece(each)[:1] for each in constraint.allowed()} == {
        bytes([each]) for each in b"0123456789!"
    }


TEXT = "Well, <call>add: 12! and <call>sub: 3! and so on <call>mul: 4"


@pytest.mark.parametrize("n_left", range(0, 60, 7))
def test_tokens_can_be_taken_back(constraint, ids, follows, vocabulary, n_left):
    tokens = ids(TEXT)
    for token in tokens:
        constraint.accept(token)
    constraint.rollback(len(tokens) - n_left)
    fresh = here(vocabulary)
    for token in tokens[:n_left]:
        fresh.accept(token)
    every = range(vocabulary.n_tokens)
    assert constraint.allows(every) == fresh.allows(every)
    for token in tokens[n_left:]:
        constraint.accept(token)
    assert follows(constraint, "<call>add: 1")
    assert not follows(constraint, "a")


def test_a_copy_goes_its_own_way(constraint, follows):
    assert follows(constraint, "<call>add: 1")
    copy = constraint.copy()
    assert follows(copy, "2! and <call>sub: 1")
    assert follows(constraint, "3!a")
    assert not follows(copy, "!a <call>sub: a")


def test_nobody_is_asked_before_a_call_begins(vocabulary, follows):
    asked = []

    def follow(calls):
        asked.append(calls)
        return FollowedCalls(calls, vocabulary)

    constraint = FreeUntilCall(CALLS, vocabulary, follow)
    assert follows(constraint, "Well, <call> add: and <call>mul: 1 <call>add")
    assert not asked
    assert follows(constraint, ":")
    assert [calls.said for calls in asked] == [b"Well, <call> add: and <call>mul: 1 <call>add"]


def test_an_error_of_a_grammar_makes_the_rest_free(vocabulary, follows):
    class Broken:
        is_ready = True

        def allowed(self, *_):
            raise RequestError("too costly", "grammar")

        allows = allowed

    constraint = FreeUntilCall(CALLS, vocabulary, lambda _: Broken())
    assert follows(constraint, "<call>add: a")
    constraint = FreeUntilCall(CALLS, vocabulary, lambda _: Broken())
    assert len(constraint.allowed()) == vocabulary.n_tokens
