"""The verifier: what a step's logits mean for each sequence, and how long choices are waited for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.engine.events import Committed
from lead.engine.sequence import EngineSequence
from lead.engine.slot import Slot
from lead.engine.speculation.drafts import DraftChain
from lead.engine.verifier import VerifiedTokens, Verifier, verify
from shared.errors import PendingAnswerError
from shared.llama.memory_traits import PLAIN
from shared.sampling.constrained import GrammarBudget
from shared.slot_cache import SlotCache
from tests.fakes import END_TOKENS, N_VOCAB, submit

PROMPT = [1, 2]
TEXT = [1, 2, 5, 6, 7]
ROWS = np.zeros((3, N_VOCAB), np.float32)


class Choosing:
    """A sampler that chooses TEXT, once `is_ready`; from position `at` on it raises `error`."""

    def __init__(self, error=None, at=99):
        self.error, self.at = error, at
        self.is_ready = True
        self.accepted = []

    def choose(self, _logits, position):
        if not self.is_ready:
            raise PendingAnswerError("wait")
        if self.error and position >= self.at:
            raise self.error
        return TEXT[position]

    def accept(self, token):
        self.accepted.append(token)


class TimeBudget:
    def __init__(self):
        self.values = []

    def set(self, seconds):
        self.values.append(seconds)


def slot_of(sampler, index=0):
    sequence = EngineSequence(submit(f"s{index}", PROMPT), lambda _: sampler)
    return Slot(SlotCache(index, PLAIN), sequence)


def chain(*tokens):
    return DraftChain(tokens, ("a",) * len(tokens), (1.0,) * len(tokens))


def begin(sampler, verifier=None, draft=(), index=0):
    """The slot, and what comes of it at once."""
    slot = slot_of(sampler, index)
    outcomes = (verifier or Verifier(END_TOKENS, GrammarBudget())).begin(slot, chain(*draft), ROWS)
    return slot, [outcome for _, outcome in outcomes]


def test_what_the_target_chooses_is_committed_and_the_rest_of_the_draft_rejected():
    _, outcomes = begin(Choosing(), draft=(5, 9))
    (committed,) = outcomes
    assert (committed.start, committed.tokens, committed.n_accepted) == (2, [5, 6], 1)
    assert (committed.rejected, committed.sources) == ([9], ["a", "a"])


def test_a_choice_that_is_not_ready_is_looked_at_again_and_goes_on_where_it_was():
    verifier, sampler = Verifier(END_TOKENS, GrammarBudget()), Choosing()
    sampler.is_ready = False
    slot, outcomes = begin(sampler, verifier, draft=(5,))
    assert (outcomes, slot.is_waiting) == ([], True)
    assert list(verifier.go_on([slot])) == []
    sampler.is_ready = True
    ((_, committed),) = verifier.go_on([slot])
    assert (committed.tokens, sampler.accepted, slot.is_waiting) == ([5, 6], [5, 6], False)


def test_logits_of_what_waits_outlive_their_step():
    verifier, sampler = Verifier(END_TOKENS, GrammarBudget()), Choosing()
    sampler.is_ready = False
    slot, _ = begin(sampler, verifier)
    assert slot.sequence.verification.rows is ROWS
    assert list(verifier.end_step([slot], 0.01)) == []
    assert slot.sequence.verification.rows is not ROWS


def test_no_memory_for_a_choice_ends_the_engine_and_not_the_sequence():
    with pytest.raises(MemoryError):
        begin(Choosing(MemoryError(), at=2))


def test_a_step_waits_in_proportion_to_its_own_time_and_gives_each_choice_an_equal_part():
    budget = TimeBudget()
    verifier = Verifier(END_TOKENS, budget)
    verifier.begin_step()
    waiting = Choosing()
    waiting.is_ready = False
    slots = [begin(waiting, verifier, index=i)[0] for i in range(2)]
    list(verifier.end_step(slots, 0.08))
    assert budget.values == [0.0, 0.01, 0.01]


def test_where_others_run_what_waits_is_only_looked_at():
    budget = TimeBudget()
    verifier = Verifier(END_TOKENS, budget)
    waiting = Choosing()
    waiting.is_ready = False
    slot, _ = begin(waiting, verifier)
    list(verifier.go_on([slot, slot_of(Choosing(), 1)]))
    list(verifier.go_on([slot]))
    assert budget.values[0] == 0.0 < budget.values[1]


def test_one_is_committed_before_the_next_is_looked_at():
    verifier, sampler = Verifier(END_TOKENS, GrammarBudget()), Choosing()
    sampler.is_ready = False
    slots = [begin(sampler, verifier, index=i)[0] for i in range(2)]
    sampler.is_ready = True
    outcomes = verifier.go_on(slots)
    assert isinstance(next(outcomes)[1], Committed)
    assert slots[1].is_waiting


END = 9
TARGET = [4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("draft", "text", "tokens", "n_accepted"),
    [
        pytest.param([], TARGET, [4], 0, id="no draft"),
        pytest.param([4, 5], TARGET, [4, 5, 6], 2, id="right, with a bonus token"),
        pytest.param([4, 1, 6], TARGET, [4, 5], 1, id="wrong, and replaced"),
        pytest.param([1, 5, 6], TARGET, [4], 0, id="wrong at once"),
        pytest.param([4, END, 7], [4, END, 7, 8], [4, END], 2, id="an end token that was drafted"),
        pytest.param([4, 5, 6], [4, END], [4, END], 1, id="an end token that was not drafted"),
        pytest.param([4], [4, END], [4, END], 1, id="an end token as the bonus"),
        pytest.param([END], [4], [4], 0, id="an end token that only the draft has"),
    ],
)
def test_what_is_committed_of_a_draft(draft, text, tokens, n_accepted):
    assert verify(draft, lambda i: text[i], {END}) == VerifiedTokens(tokens, n_accepted)


def test_a_choice_is_made_only_where_all_before_it_was_accepted():
    asked = []

    def choose(i):
        asked.append(i)
        return TARGET[i]

    verify([4, 5, 1, 7], choose, {END})
    assert asked == [0, 1, 2]


tokens = st.lists(st.integers(0, END), min_size=1, max_size=6)


@given(text=tokens, n_right=st.integers(0, 6), guesses=tokens)
def test_the_committed_tokens_are_the_longest_right_beginning_and_one_more(text, n_right, guesses):
    draft = [*text[:n_right], *guesses]
    text = [*text, *range(20, 40)]  # no guess is right there
    verified = verify(draft, text.__getitem__, {END})
    n = len(verified.tokens)
    assert verified.tokens == text[:n]
    assert END not in verified.tokens[:-1]
    assert draft[: verified.n_accepted] == text[: verified.n_accepted]
    stopped = verified.tokens[-1] == END
    assert n == verified.n_accepted + 1 or (stopped and n == verified.n_accepted)
    assert stopped or draft[:n] != text[:n]
