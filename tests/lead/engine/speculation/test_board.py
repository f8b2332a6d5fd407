"""The board holds one draft per source, what of each is still in the future, and scores them all."""

from itertools import accumulate
from operator import mul

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from lead.engine.speculation.board import Board, TokenOutcome
from lead.engine.speculation.draft_chain import EMPTY_CHAIN, DraftChain
from lead.engine.speculation.draft_tree import DraftTree

COMMITTED = [10, 11, 12]


@pytest.fixture
def board():
    board = Board()
    board.open("s")
    return board


def even(_source, _confidence, _agreement):
    return 0.5


def stated(_source, confidence, _agreement):
    return confidence


def post(board, base, tokens, parents=None, confidences=None, *, source="a", committed=COMMITTED):
    return board.post("s", source, DraftTree(base, tokens, parents, confidences), committed)


def best(board, chance=even):
    return board.best("s", chance).tokens


def right_of(outcomes):
    return [(outcome.source, outcome.place, outcome.right) for outcome in outcomes]


# What lives


def test_an_empty_board_proposes_nothing(board):
    assert board.best("s", even) == EMPTY_CHAIN


def test_a_draft_on_the_newest_tokens_lives(board):
    assert post(board, 3, [1, 2]).alive
    assert board.best("s", even) == DraftChain((1, 2), ("a", "a"), (0.5, 0.5))


class CountedTokens(list):
    """Committed tokens that count how many of them were read."""

    n_read = 0

    def __getitem__(self, index):
        self.n_read += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("tokens", [[5, 6], [10, 6]])
def test_the_cost_of_a_draft_does_not_depend_on_its_age(board, tokens):
    committed = CountedTokens([10] * 10_000)
    post(board, 0, tokens, committed=committed)
    assert committed.n_read <= 2 * len(tokens)


def test_of_an_older_draft_that_was_right_the_tail_lives(board):
    assert post(board, 1, [11, 12, 1, 2]).alive
    assert best(board) == (1, 2)


def test_a_late_tree_lives_through_a_side_branch(board):
    assert post(board, 1, [5, 11, 6, 12, 1], [-1, -1, 1, 1, 3]).alive
    assert best(board) == (1,)


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
def test_a_draft_with_nothing_left_to_propose_is_refused(board, base, tokens):
    assert not post(board, base, tokens).alive
    assert best(board) == ()


def test_a_draft_for_an_unknown_sequence_is_refused(board):
    assert board.post("unknown", "a", DraftTree(3, [1]), COMMITTED) == (False, [])
    assert board.best("unknown", even) == EMPTY_CHAIN


def test_a_draft_for_a_closed_sequence_is_refused(board):
    board.close("s")
    assert not post(board, 3, [1]).alive


def test_closing_forgets_the_drafts(board):
    post(board, 3, [1])
    board.close("s")
    board.open("s")
    assert best(board) == ()


BY_AGREEMENT = {"single": 0.7, "agreed": 0.9, "conflicting": 0.4}


def test_the_probabilities_of_a_draft_count_what_others_propose_beside_it(board):
    post(board, 3, [1, 2, 3, 4], source="a")
    post(board, 3, [1, 2, 9, 4], source="b")
    of_a = board.probabilities("s", "a", lambda _source, _confidence, agreement: BY_AGREEMENT[agreement])
    assert of_a == (0.9, 0.9, 0.4, 0.7)  # behind the conflict it is alone


def test_where_sources_agree_the_better_one_says_how_likely_the_token_is(board):
    post(board, 3, [1, 2], confidences=[0.6, 0.6], source="a")
    post(board, 3, [1, 5], confidences=[0.8, 0.8], source="b")
    assert board.probabilities("s", "a", stated) == (0.8, 0.6)


def test_a_source_without_a_draft_has_no_probabilities(board):
    post(board, 3, [1], source="a")
    assert board.probabilities("s", "b", even) == ()


def test_behind_a_draft_counts_what_agrees_with_all_of_it(board):
    post(board, 3, [1], confidences=[0.9], source="a")
    post(board, 3, [1, 2, 3], confidences=[0.9, 0.6, 0.5], source="b")
    post(board, 3, [7, 2, 3, 4], confidences=[0.9, 0.8, 0.8, 0.8], source="c")
    assert board.probabilities_behind("s", "a", stated) == (0.6, 0.5)
    assert board.probabilities_behind("s", "c", stated) == ()
    assert board.probabilities_behind("s", "new", stated)[1:] == (0.8, 0.8, 0.8)


def test_outcomes_say_how_likely_the_token_of_another_source_seemed(board):
    post(board, 3, [1, 2], confidences=[0.9, 0.7], source="a")
    post(board, 3, [1], confidences=[0.6], source="b")
    outcomes = board.extend("s", 3, [1, 2], stated)
    assert [(each.source, each.beside) for each in outcomes] == [("a", 0.6), ("b", 0.9), ("a", None)]


def test_sequences_have_drafts_of_their_own(board):
    board.open("t")
    post(board, 3, [1])
    assert board.best("t", even) == EMPTY_CHAIN


def test_stale_drafts_are_counted_by_source_and_reported_once(board):
    post(board, 9, [1])
    post(board, 9, [1])
    board.post("unknown", "b", DraftTree(3, [1]), COMMITTED)
    assert board.pop_stale() == {"a": 2, "b": 1}
    assert board.pop_stale() == {}


def test_a_draft_stays_while_the_text_agrees(board):
    post(board, 3, [1, 2, 3])
    board.extend("s", 3, [1, 2])
    assert best(board) == (3,)


def test_a_draft_goes_when_the_text_disagrees(board):
    post(board, 3, [1, 2, 3])
    board.extend("s", 3, [1, 9])
    assert best(board) == ()
    assert list(board.sources("s")) == []


def test_a_draft_goes_when_it_has_come_true_to_its_end(board):
    post(board, 3, [1, 2])
    board.extend("s", 3, [1, 2])
    assert list(board.sources("s")) == []


def test_after_a_recovered_token_the_branch_that_begins_with_it_is_the_main_branch(board):
    post(board, 3, [1, 2, 9, 8, 7], [-1, 0, -1, 2, 3])
    board.extend("s", 3, [9])
    assert best(board) == (8, 7)
    assert [draft.token for draft in board.main_branch("s", "a")] == [8, 7]


def test_a_source_that_proposes_nothing_has_no_main_branch(board):
    assert board.main_branch("s", "a") == []


# Which draft of a source is kept


def test_a_draft_that_knew_more_of_the_text_replaces_a_longer_one(board):
    post(board, 1, [11, 12, 1, 2, 3])
    post(board, 3, [4])
    assert best(board) == (4,)


def test_a_longer_draft_on_the_same_text_replaces_a_shorter_one(board):
    post(board, 3, [1])
    post(board, 3, [1, 2])
    assert best(board) == (1, 2)


@pytest.mark.parametrize(("base", "tokens"), [(3, [4]), (2, [12, 1, 2, 3, 4, 5])])
def test_a_draft_that_was_overtaken_replaces_nothing(board, base, tokens):
    post(board, 3, [1, 2, 3])
    assert post(board, base, tokens).alive
    assert best(board) == (1, 2, 3)


def test_a_refused_draft_replaces_nothing(board):
    post(board, 3, [1, 2, 3])
    post(board, 9, [4])
    assert best(board) == (1, 2, 3)


# The best line


def test_of_drafts_of_equal_probabilities_the_longest_is_the_best(board):
    post(board, 3, [1, 2])
    post(board, 3, [4, 5, 6], source="b")
    post(board, 3, [7], source="c")
    assert best(board) == (4, 5, 6)


def test_only_the_future_counts_for_length(board):
    post(board, 0, [10, 11, 12, 1])
    post(board, 3, [4, 5], source="b")
    assert best(board) == (4, 5)


def test_a_likely_short_draft_beats_an_unlikely_long_one(board):
    post(board, 3, [1, 2], confidences=[0.9, 0.9])
    post(board, 3, [4, 5, 6, 7], confidences=[0.4, 0.9, 0.9, 0.9], source="b")
    assert best(board, stated) == (1, 2)


def test_a_draft_that_begins_worse_but_goes_on_better_is_the_best(board):
    post(board, 3, [1, 2, 3], confidences=[0.6, 0.1, 0.1])
    post(board, 3, [4, 5, 6], confidences=[0.5, 0.9, 0.9], source="b")
    assert best(board, stated) == (4, 5, 6)


def test_where_lines_agree_each_token_is_from_the_surer_source(board):
    post(board, 3, [1, 2, 3], confidences=[0.9, 0.5, 0.9])
    post(board, 3, [1, 2], confidences=[0.6, 0.8], source="b")
    assert board.best("s", stated) == DraftChain((1, 2, 3), ("a", "b", "a"), (0.9, 0.8, 0.9))


def test_where_one_line_ends_the_other_goes_on(board):
    post(board, 3, [1])
    post(board, 3, [1, 2, 3], source="b")
    assert best(board) == (1, 2, 3)


def test_the_chance_is_asked_for_with_what_the_others_propose(board):
    asked = set()

    def chance(source, _confidence, agreement):
        asked.add((source, agreement))
        return 0.5

    post(board, 3, [1, 2])
    post(board, 3, [1, 3], source="b")
    post(board, 3, [4, 5], source="c")
    board.best("s", chance)
    assert asked == {
        ("a", "agreed"),
        ("b", "agreed"),
        ("c", "conflicting"),
        ("a", "conflicting"),
        ("b", "conflicting"),
        ("c", "single"),
    }


def test_agreement_decides_if_it_makes_tokens_likelier(board):
    def chance(_source, _confidence, agreement):
        return {"agreed": 0.9, "conflicting": 0.3, "single": 0.5}[agreement]

    post(board, 3, [4, 5, 6])
    post(board, 3, [1, 2], source="b")
    post(board, 3, [1, 2], source="c")
    assert best(board, chance) == (1, 2)


@pytest.mark.parametrize("sources", ["a", "ab"])
def test_a_chain_ends_where_it_has_become_too_unlikely(board, sources):
    for source in sources:
        post(board, 3, [1] * 40, confidences=[0.05] * 40, source=source)
    assert len(board.best("s", stated, min_survival=0.01).tokens) == 2


@pytest.mark.parametrize("sources", ["a", "ab"])
def test_without_a_minimum_survival_an_unlikely_chain_is_proposed_whole(board, sources):
    for source in sources:
        post(board, 3, [1] * 40, confidences=[0.0] * 40, source=source)
    assert len(best(board, stated)) == 32


# Outcomes


def test_each_committed_token_is_an_outcome_up_to_the_first_wrong_one(board):
    post(board, 3, [1, 2, 3, 4], confidences=[0.9, 0.8, 0.7, 0.6])
    assert board.extend("s", 3, [1, 2, 9, 4]) == [
        TokenOutcome("a", 0.9, "single", 0, True),
        TokenOutcome("a", 0.8, "single", 1, True),
        TokenOutcome("a", 0.7, "single", 2, False),
    ]


def test_all_sources_are_tried_whichever_was_verified(board):
    post(board, 3, [1, 2])
    post(board, 3, [1, 5], source="b")
    post(board, 3, [7], source="c")
    assert board.extend("s", 3, [1, 2]) == [
        TokenOutcome("a", None, "agreed", 0, True),
        TokenOutcome("b", None, "agreed", 0, True),
        TokenOutcome("c", None, "conflicting", 0, False),
        TokenOutcome("a", None, "conflicting", 1, True),
        TokenOutcome("b", None, "conflicting", 1, False),
    ]


def test_after_a_recovered_token_its_branch_is_tried(board):
    post(board, 3, [1, 9, 8], [-1, -1, 1])
    assert right_of(board.extend("s", 3, [9, 8])) == [("a", 0, False), ("a", 1, True)]


def test_without_drafts_nothing_is_tried(board):
    assert board.extend("s", 3, [1, 2]) == []


def test_a_late_draft_is_tried_on_arrival(board):
    assert right_of(post(board, 1, [11, 99, 1]).outcomes) == [("a", 0, True), ("a", 1, False)]


def test_what_a_source_was_tried_for_already_is_not_tried_again(board):
    post(board, 3, [1, 2])
    board.extend("s", 3, [1, 7, 8])
    committed = [*COMMITTED, 1, 7, 8]
    assert right_of(post(board, 3, [1, 2], committed=committed).outcomes) == []
    assert right_of(post(board, 3, [1, 7, 8], committed=committed).outcomes) == [("a", 2, True)]
    assert right_of(post(board, 3, [1, 7, 8, 5], committed=committed).outcomes) == []


def test_a_draft_that_was_overtaken_is_still_tried_where_no_other_was(board):
    post(board, 3, [5])
    assert right_of(post(board, 1, [11, 13]).outcomes) == [("a", 0, True), ("a", 1, False)]


def test_a_draft_ahead_of_the_text_says_nothing_yet(board):
    assert post(board, 5, [1, 2]).outcomes == []


# Integrity


def test_integrity_means_exactly_the_expected_sequences(board):
    board.check_integrity({"s"})
    with pytest.raises(AssertionError, match="expected"):
        board.check_integrity({"s", "t"})


def test_a_dead_draft_on_the_board_is_noticed(board):
    post(board, 3, [1])
    board._drafts["s"].trees["a"].step(9)
    with pytest.raises(AssertionError, match="dead draft"):
        board.check_integrity({"s"})


CHANCES = {"agreed": 0.95, "single": 0.8, "conflicting": 0.6}


def machine_chance(source, confidence, agreement):
    """Any function of all three will do, if it keeps the machine's short lines above the board's least."""
    return CHANCES[agreement] - 0.01 * ord(source) % 0.07 - (confidence or 0) / 20


class Posted:
    """A posted tree, walked from its root each time."""

    def __init__(self, base, tokens, parents, confidences):
        self.base, self.tokens, self.parents, self.confidences = base, tokens, parents, confidences

    def line(self, text):
        """(token, confidence) of each node that it proposes to follow `text`."""
        if self.base > len(text):
            return []
        node = -1
        for token in text[self.base :]:
            following = [i for i in self._following(node) if self.tokens[i] == token]
            if not following:
                return []
            node = following[0]
        line = []
        while following := self._following(node):
            node = following[0]
            line.append((self.tokens[node], self.confidences[node]))
        return line

    def _following(self, node):
        return [i for i, parent in enumerate(self.parents) if parent == node]


def agreement_of(token, tokens):
    if len(tokens) == 1:
        return "single"
    return "agreed" if tokens.count(token) > 1 else "conflicting"


def value_of(chosen, lines):
    """The expected number of right tokens of the line of source `chosen`."""
    chances = []
    agreeing = dict(lines)
    for place, (token, _) in enumerate(lines[chosen]):
        here = {source: line[place] for source, line in agreeing.items() if place < len(line)}
        agreement = agreement_of(token, [other for other, _ in here.values()])
        agreeing = {source: agreeing[source] for source, (other, _) in here.items() if other == token}
        chances.append(max(machine_chance(source, here[source][1], agreement) for source in agreeing))
    return sum(accumulate(chances, mul))


@st.composite
def shapes(draw):
    """Parents of up to seven tokens: a chain, or any tree."""
    n = draw(st.integers(0, 7))
    chain = [i - 1 for i in range(n)]
    return chain if draw(st.booleans()) else [draw(st.integers(-1, i - 1)) for i in range(n)]


class BoardMachine(RuleBasedStateMachine):
    """Beside the board, every source's newest draft that lived when it came, and what it was tried for."""

    sequences = Bundle("sequences")
    sources = st.sampled_from("abc")
    tokens = st.integers(0, 2)

    def __init__(self):
        super().__init__()
        self.board = Board()
        self.committed: dict[str, list[int]] = {}
        self.posted: dict[str, dict[str, Posted]] = {}  # by sequence and source
        self.tried: set[tuple[str, str, int]] = set()  # sequence, source, position
        self.n_opened = 0
        self.n_stale = 0

    @rule(target=sequences, prompt=st.lists(tokens, min_size=1, max_size=4))
    def open(self, prompt):
        sequence = f"s{self.n_opened}"
        self.n_opened += 1
        self.board.open(sequence)
        self.committed[sequence], self.posted[sequence] = list(prompt), {}
        return sequence

    @rule(sequence=consumes(sequences))
    def close(self, sequence):
        self.board.close(sequence)
        del self.committed[sequence], self.posted[sequence]

    @rule(sequence=sequences, tokens=st.lists(tokens, min_size=1, max_size=3))
    def commit(self, sequence, tokens):
        committed = self.committed[sequence]
        start, expected = len(committed), []
        for place, token in enumerate(tokens):
            proposed = {
                source: line[0]
                for source, posted in self.posted[sequence].items()
                if (line := posted.line(committed))
            }
            for source, (guess, confidence) in proposed.items():
                agreement = agreement_of(guess, [other for other, _ in proposed.values()])
                expected.append(TokenOutcome(source, confidence, agreement, place, guess == token))
                self.note(sequence, source, len(committed))
            committed.append(token)
        assert sorted(self.board.extend(sequence, start, tokens), key=repr) == sorted(expected, key=repr)

    @rule(sequence=sequences, source=sources, n=st.integers(1, 3))
    def commit_what_was_drafted(self, sequence, source, n):
        posted = self.posted[sequence].get(source)
        line = posted.line(self.committed[sequence]) if posted else []
        if line:
            self.commit(sequence, [token for token, _ in line[:n]])

    @rule(
        sequence=sequences,
        source=sources,
        n_back=st.integers(-2, 4),
        n_right=st.integers(0, 4),
        parents=shapes(),
        draws=st.lists(tokens, min_size=11, max_size=11),
    )
    def post(  # noqa: PLR0917 - what hypothesis draws
        self, sequence, source, n_back, n_right, parents, draws
    ):
        committed = self.committed[sequence]
        base = max(0, len(committed) - n_back)
        right = committed[base : base + n_right]
        parents = [*(i - 1 for i in range(len(right))), *(parent + len(right) for parent in parents)]
        tokens = [*right, *draws[: len(parents) - len(right)]]
        posted = Posted(base, tokens, parents, [draw / 2 for draw in draws[: len(tokens)]])
        expected = []
        for position in range(max(base, self.n_tried(sequence, source)), len(committed)):
            if line := posted.line(committed[:position]):
                token, confidence = line[0]
                right = token == committed[position]
                expected.append(TokenOutcome(source, confidence, "single", position - base, right))
                self.note(sequence, source, position)
        lives = bool(posted.line(committed))
        tree = DraftTree(base, tokens, parents, posted.confidences)
        assert self.board.post(sequence, source, tree, committed) == (lives, expected)
        self.n_stale += not lives
        older = self.posted[sequence].get(source)
        older_lives = older is not None and bool(older.line(committed))
        if lives and not (older_lives and (base, len(tokens)) < (older.base, len(older.tokens))):
            self.posted[sequence][source] = posted

    def n_tried(self, sequence, source):
        """Up to which position."""
        positions = [at for for_, by, at in self.tried if (for_, by) == (sequence, source)]
        return 1 + max(positions, default=-1)

    def note(self, sequence, source, position):
        assert (sequence, source, position) not in self.tried, "tried twice for one token"
        self.tried.add((sequence, source, position))

    @invariant()
    def the_best_line_is_the_one_of_the_highest_value(self):
        for sequence, committed in self.committed.items():
            lines = {
                source: line
                for source, posted in self.posted[sequence].items()
                if (line := posted.line(committed))
            }
            best = self.board.best(sequence, machine_chance)
            value = sum(accumulate(best.probabilities, mul))
            most = max((value_of(source, lines) for source in lines), default=0.0)
            assert value == pytest.approx(most)
            assert not lines or any(
                best.tokens == tuple(token for token, _ in line) for line in lines.values()
            )

    @invariant()
    def each_source_proposes_its_line(self):
        for sequence, committed in self.committed.items():
            for source, posted in self.posted[sequence].items():
                assert self.board.main_branch(sequence, source) == posted.line(committed)

    @invariant()
    def the_books_are_right(self):
        self.board.check_integrity(set(self.committed))

    def teardown(self):
        assert sum(self.board.pop_stale().values()) == self.n_stale


TestBoardMachine = BoardMachine.TestCase
