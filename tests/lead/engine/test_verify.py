"""Verification commits the target's own tokens, and one more than the draft had right."""

from hypothesis import given
from hypothesis import strategies as st

from lead.engine.verify import VerifiedTokens, verify

END = 9
TEXT = [4, 5, 6, 7, 8]


def judge(draft, text=TEXT):
    return verify(draft, lambda i: text[i], {END})


def test_without_a_draft_there_is_one_token():
    assert judge([]) == VerifiedTokens([4], 0)


def test_a_right_draft_brings_a_bonus_token():
    assert judge([4, 5]) == VerifiedTokens([4, 5, 6], 2)


def test_a_wrong_token_is_replaced_by_the_target_s():
    assert judge([4, 1, 6]) == VerifiedTokens([4, 5], 1)


def test_a_draft_that_is_wrong_at_once_still_brings_one_token():
    assert judge([1, 5, 6]) == VerifiedTokens([4], 0)


def test_nothing_follows_an_end_token_that_was_drafted():
    assert judge([4, END, 7], [4, END, 7, 8]) == VerifiedTokens([4, END], 2)


def test_nothing_follows_an_end_token_that_was_not_drafted():
    assert judge([4, 5, 6], [4, END]) == VerifiedTokens([4, END], 1)


def test_an_end_token_can_be_the_bonus():
    assert judge([4], [4, END]) == VerifiedTokens([4, END], 1)


def test_an_end_token_that_only_the_draft_has_ends_nothing():
    assert judge([END], [4]) == VerifiedTokens([4], 0)


def test_a_choice_is_made_only_where_all_before_it_was_accepted():
    asked = []

    def choose(i):
        asked.append(i)
        return TEXT[i]

    verify([4, 5, 1, 7], choose, {END})
    assert asked == [0, 1, 2]


tokens = st.lists(st.integers(0, END), min_size=1, max_size=6)


@given(text=tokens, n_right=st.integers(0, 6), guesses=tokens)
def test_the_committed_tokens_are_the_longest_right_beginning_and_one_more(text, n_right, guesses):
    draft = [*text[:n_right], *guesses]
    text = [*text, *range(20, 40)]  # no guess is right there
    verified = judge(draft, text)
    n = len(verified.tokens)
    assert verified.tokens == text[:n]
    assert END not in verified.tokens[:-1]
    assert draft[: verified.n_accepted] == text[: verified.n_accepted]
    stopped = verified.tokens[-1] == END
    assert n == verified.n_accepted + 1 or (stopped and n == verified.n_accepted)
    assert stopped or draft[:n] != text[:n]
