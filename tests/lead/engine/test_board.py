"""The board holds one draft per source, and of each what is still in the future."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from lead.engine.board import Board, Proposal

COMMITTED = [10, 11, 12]


@pytest.fixture
def board():
    board = Board()
    board.open("s")
    return board


def test_an_empty_board_proposes_nothing(board):
    assert board.best("s", COMMITTED) is None


def test_a_draft_on_the_newest_tokens_lives(board):
    assert board.post("s", "a", 3, [1, 2], COMMITTED)
    assert board.best("s", COMMITTED) == Proposal("a", (1, 2))


def test_of_an_older_draft_that_was_right_the_tail_lives(board):
    assert board.post("s", "a", 1, [11, 12, 1, 2], COMMITTED)
    assert board.best("s", COMMITTED) == Proposal("a", (1, 2))


@pytest.mark.parametrize(
    ("base", "tokens"),
    [
        (1, [11, 99, 1]),  # wrong where the text has gone on
        (1, [11, 12]),  # right, but nothing of it is in the future
        (1, [11]),
        (4, [1, 2]),  # ahead of the text
        (3, []),
        (0, []),
    ],
)
def test_a_draft_without_a_future_is_refused(board, base, tokens):
    assert not board.post("s", "a", base, tokens, COMMITTED)
    assert board.best("s", COMMITTED) is None


def test_a_draft_for_an_unknown_sequence_is_refused(board):
    assert not board.post("unknown", "a", 3, [1], COMMITTED)


def test_a_draft_for_a_closed_sequence_is_refused(board):
    board.close("s")
    assert not board.post("s", "a", 3, [1], COMMITTED)


def test_closing_forgets_the_drafts(board):
    board.post("s", "a", 3, [1], COMMITTED)
    board.close("s")
    board.open("s")
    assert board.best("s", COMMITTED) is None


def test_a_newer_draft_replaces_the_older_one_of_its_source(board):
    board.post("s", "a", 3, [1, 2, 3], COMMITTED)
    board.post("s", "a", 3, [4], COMMITTED)
    assert board.best("s", COMMITTED) == Proposal("a", (4,))


def test_a_refused_draft_replaces_nothing(board):
    board.post("s", "a", 3, [1, 2, 3], COMMITTED)
    board.post("s", "a", 9, [4], COMMITTED)
    assert board.best("s", COMMITTED) == Proposal("a", (1, 2, 3))


def test_the_longest_draft_is_the_best(board):
    board.post("s", "a", 3, [1, 2], COMMITTED)
    board.post("s", "b", 3, [4, 5, 6], COMMITTED)
    board.post("s", "c", 3, [7], COMMITTED)
    assert board.best("s", COMMITTED) == Proposal("b", (4, 5, 6))


def test_only_the_future_counts_for_length(board):
    board.post("s", "a", 0, [10, 11, 12, 1], COMMITTED)
    board.post("s", "b", 3, [4, 5], COMMITTED)
    assert board.best("s", COMMITTED) == Proposal("b", (4, 5))


def test_of_equally_long_drafts_the_newest_is_the_best(board):
    board.post("s", "b", 3, [1, 2], COMMITTED)
    board.post("s", "a", 3, [3, 4], COMMITTED)
    assert board.best("s", COMMITTED) == Proposal("a", (3, 4))


def test_a_draft_stays_while_the_text_agrees(board):
    board.post("s", "a", 3, [1, 2, 3], COMMITTED)
    assert board.best("s", [*COMMITTED, 1, 2]) == Proposal("a", (3,))


def test_a_draft_goes_when_the_text_disagrees(board):
    board.post("s", "a", 3, [1, 2, 3], COMMITTED)
    assert board.best("s", [*COMMITTED, 1, 9]) is None


def test_sequences_have_drafts_of_their_own(board):
    board.open("t")
    board.post("s", "a", 3, [1], COMMITTED)
    assert board.best("t", COMMITTED) is None


def test_refused_drafts_are_counted_by_source_and_told_once(board):
    board.post("s", "a", 9, [1], COMMITTED)
    board.post("s", "a", 9, [1], COMMITTED)
    board.post("unknown", "b", 3, [1], COMMITTED)
    assert board.take_stale() == {"a": 2, "b": 1}
    assert board.take_stale() == {}


def test_integrity_means_exactly_the_expected_sequences(board):
    board.check_integrity({"s"})
    with pytest.raises(AssertionError, match="expected"):
        board.check_integrity({"s", "t"})


class BoardMachine(RuleBasedStateMachine):
    """Beside the board, every source's newest draft that lived when it came, unshortened."""

    sequences = Bundle("sequences")
    sources = st.sampled_from("abc")

    def __init__(self):
        super().__init__()
        self.board = Board()
        self.committed: dict[str, list[int]] = {}
        self.posted: dict[str, dict[str, list[int]]] = {}  # by sequence and source: the text with the draft
        self.n_opened = 0
        self.n_stale = 0

    @rule(target=sequences, prompt=st.lists(st.integers(0, 2), min_size=1, max_size=4))
    def open(self, prompt):
        sequence = f"s{self.n_opened}"
        self.n_opened += 1
        self.board.open(sequence)
        self.committed[sequence], self.posted[sequence] = prompt, {}
        return sequence

    @rule(sequence=consumes(sequences))
    def close(self, sequence):
        self.board.close(sequence)
        del self.committed[sequence], self.posted[sequence]

    @rule(sequence=sequences, tokens=st.lists(st.integers(0, 2), min_size=1, max_size=3))
    def commit(self, sequence, tokens):
        self.committed[sequence] += tokens

    @rule(sequence=sequences, source=sources)
    def commit_what_was_drafted(self, sequence, source):
        text, n = self.posted[sequence].get(source, []), len(self.committed[sequence])
        if text[:n] == self.committed[sequence]:
            self.committed[sequence] += text[n : n + 2]

    @rule(
        sequence=sequences,
        source=sources,
        n_back=st.integers(-2, 4),
        n_right=st.integers(0, 4),
        guesses=st.lists(st.integers(0, 2), max_size=5),
    )
    def post(self, sequence, source, n_back, n_right, guesses):
        committed = self.committed[sequence]
        base = max(0, len(committed) - n_back)
        tokens = [*committed[base : base + n_right], *guesses]
        text = [*committed[:base], *tokens]
        lives = base <= len(committed) < len(text) and text[: len(committed)] == committed
        assert self.board.post(sequence, source, base, tokens, committed) == lives
        if lives:
            self.posted[sequence].pop(source, None)
            self.posted[sequence][source] = text
        else:
            self.n_stale += 1

    @invariant()
    def the_best_is_the_longest_and_newest_that_agrees(self):
        for sequence, committed in self.committed.items():
            n = len(committed)
            tails = [
                Proposal(source, tuple(text[n:]))
                for source, text in self.posted[sequence].items()
                if text[:n] == committed and len(text) > n
            ]
            tails.reverse()  # the newest first, and `max` takes the first of equals
            best = max(tails, key=lambda proposal: len(proposal.tokens), default=None)
            assert self.board.best(sequence, committed) == best

    @invariant()
    def the_books_are_right(self):
        self.board.check_integrity(set(self.committed))

    def teardown(self):
        assert sum(self.board.take_stale().values()) == self.n_stale


TestBoardMachine = BoardMachine.TestCase
