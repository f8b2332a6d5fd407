"""A sequence knows how many more tokens it may get, and which draft tokens it commits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.engine.sequence import EngineSequence, Verification, verify
from lead.engine.speculation.drafts import Drafts, DraftToken
from shared.errors import PendingAnswerError
from shared.slot_cache import common_prefix_length
from tests.toy_engine import engine_sequence, submit
from tests.toy_model import END_TOKENS, N_VOCAB


def endless(n_ctx, checkpoints=()):
    """A sequence that keeps the first 4 of its 10 tokens."""
    request = submit(tokens=range(10)).model_copy(update={"n_keep": 4})
    return EngineSequence(request, n_ctx, lambda _: None, checkpoints)


@pytest.mark.parametrize(
    ("max_tokens", "n_ctx", "n_left"), [(None, 10, 7), (5, 10, 5), (9, 10, 7), (5, 4, 1), (None, 3, 0)]
)
def test_a_sequence_may_fill_the_context_or_its_limit_whichever_is_less(max_tokens, n_ctx, n_left):
    assert engine_sequence("s", range(3), n_ctx, max_tokens=max_tokens).n_left == n_left


def test_what_was_generated_counts_towards_both_limits():
    for n_ctx, n_left in ((100, 3), (6, 1)):
        grown = engine_sequence("s", range(3), n_ctx, max_tokens=5)
        grown.tokens += [7, 8]
        assert grown.n_left == n_left


def test_checkpoints_of_discarded_tokens_are_forgotten():
    assert endless(10, (2, 4, 7)).checkpoints == (2, 4)


def test_even_an_endless_text_has_a_bound(monkeypatch):
    monkeypatch.setattr("lead.engine.sequence.MAX_TEXT_TOKENS", 25)
    grown = endless(20)
    assert (grown.n_left, grown.is_complete) == (10, False)
    grown.append(range(10, 20))
    grown.shift_context()
    assert grown.n_left == 5
    grown.append(range(20, 25))
    assert grown.is_complete


# Drafts


class Choosing:
    """A sampler that chooses TEXT. From position `at` on it raises `error`."""

    def __init__(self, error=None, at=99):
        self.error, self.at = error, at
        self.accepted = []

    def choose(self, _logits, position):
        if self.error and position >= self.at:
            raise self.error
        return TEXT[position]

    def accept(self, token):
        self.accepted.append(token)


TEXT = [1, 2, 5, 6, 7]


def drafted(sampler, *draft):
    """A sequence of two tokens whose `draft` has been decoded."""
    sequence = EngineSequence(submit(tokens=TEXT[:2]), 100, lambda _: sampler)
    chain = [DraftToken(token, "a", 1.0) for token in draft]
    sequence.verification = Verification(
        Drafts("s", sequence.tokens, {}, 0.0), 2, chain, np.zeros((3, N_VOCAB), np.float32)
    )
    return sequence


def test_what_the_target_chooses_is_committed_and_the_rest_of_the_draft_rejected():
    committed = drafted(Choosing(), 5, 9).verify(END_TOKENS).event({})
    assert (committed.start, committed.tokens, committed.n_accepted) == (2, [5, 6], 1)
    assert (committed.rejected, committed.sources) == ([9], ["a", "a"])


def test_a_choice_that_is_not_ready_goes_on_where_it_was():
    sampler = Choosing(PendingAnswerError("wait"), at=3)
    sequence = drafted(sampler, 5)
    assert sequence.verify(END_TOKENS) is None
    sampler.error = None
    assert sequence.verify(END_TOKENS).tokens == sampler.accepted == [5, 6]
    assert sequence.verification is None


def test_no_memory_for_a_choice_ends_the_engine_and_not_the_sequence():
    with pytest.raises(MemoryError):
        drafted(Choosing(MemoryError(), at=2)).verify(END_TOKENS)


END = 9
TARGET = [4, 5, 6, 7, 8]


def test_a_choice_is_made_only_where_all_before_it_was_accepted():
    asked = []

    def choose(i):
        asked.append(i)
        return TARGET[i]

    verify([4, 5, 1, 7], choose, {END}, [])
    assert asked == [0, 1, 2]


tokens = st.lists(st.integers(0, END), min_size=1, max_size=6)


@given(text=tokens, n_right=st.integers(0, 6), guesses=tokens)
def test_the_committed_tokens_are_the_longest_right_beginning_and_one_more(text, n_right, guesses):
    draft = [*text[:n_right], *guesses]
    text = [*text, *range(20, 40)]  # no guess is right there
    chosen = []
    n_accepted = verify(draft, text.__getitem__, {END}, chosen)
    assert chosen == text[: len(chosen)]
    assert END not in chosen[:-1]
    assert n_accepted == common_prefix_length(chosen, draft)
    assert len(chosen) == n_accepted + 1 or chosen[-1] == END
