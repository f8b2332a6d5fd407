from itertools import accumulate
from operator import mul

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from lead.engine.speculation.drafts import Drafts, DraftToken, DraftTree, survival
from tests.lead.engine.speculation.support import Given


def scored(drafts):
    """(token, agreement, place, whether it was right) of all tokens that can be compared."""
    outcomes = []
    drafts.score(lambda *outcome: outcomes.append(outcome))
    return outcomes


class CountedTokens(list):
    """Committed tokens that count how many of them were read."""

    n_read = 0

    def __getitem__(self, index):
        self.n_read += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("tokens", [[5, 6], [10, 6]])
def test_the_cost_of_a_draft_does_not_depend_on_its_age(tokens):
    committed = CountedTokens([10] * 10_000)
    Drafts("s", committed, {}, 0.0).post(DraftTree("a", 0, tokens))
    assert committed.n_read <= 2 * len(tokens)


def test_a_dead_draft_that_is_kept_is_noticed():
    drafts = Drafts("s", [10, 11, 12], {}, 0.0)
    drafts.post(DraftTree("a", 3, [1]))
    drafts.trees["a"].follow([9])
    with pytest.raises(AssertionError, match="dead draft"):
        drafts.check_integrity()


CHANCES = {"agreed": 0.95, "single": 0.8, "conflicting": 0.6}


def machine_chance(source, confidence, agreement):
    """Any function of the three will do if it keeps the machine's short lines likely enough."""
    return CHANCES[agreement] - 0.01 * ord(source) % 0.07 - (confidence or 0) / 20


class Posted:
    """A reference for a posted tree, which is walked from its root each time."""

    def __init__(self, base, tokens, parents, confidences):
        self.base, self.tokens, self.parents, self.confidences = base, tokens, parents, confidences

    def line(self, text):
        """(token, confidence) of each node that the draft proposes to follow `text`."""
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


class DraftsMachine(RuleBasedStateMachine):
    """Compares with the newest living draft of every source, and with the positions at which it was tried."""

    sequences = Bundle("sequences")
    sources = st.sampled_from("abc")
    tokens = st.integers(0, 2)

    def __init__(self):
        super().__init__()
        self.drafts: dict[str, Drafts] = {}
        self.committed: dict[str, list[int]] = {}
        self.posted: dict[str, dict[str, Posted]] = {}  # by sequence and source
        self.tried: set[tuple[str, str, int]] = set()  # sequence, source, position
        self.expected: dict[str, list[tuple]] = {}  # that nobody has asked for yet
        self.n_opened = 0

    @rule(target=sequences, prompt=st.lists(tokens, min_size=1, max_size=4))
    def open(self, prompt):
        sequence = f"s{self.n_opened}"
        self.n_opened += 1
        self.committed[sequence], self.posted[sequence] = list(prompt), {}
        self.drafts[sequence] = Drafts(sequence, self.committed[sequence], {}, 0.0)
        self.expected[sequence] = []
        return sequence

    @rule(sequence=consumes(sequences))
    def close(self, sequence):
        del self.drafts[sequence], self.committed[sequence], self.posted[sequence]

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
                drafted = DraftToken(guess, source, confidence)
                expected.append((drafted, agreement, place, guess == token))
                self.note(sequence, source, len(committed))
            committed.append(token)
        self.drafts[sequence].extend(start, tokens, 0.0)
        self.expected[sequence] += expected

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
                drafted, right = DraftToken(token, source, confidence), token == committed[position]
                expected.append((drafted, "single", position - base, right))
                self.note(sequence, source, position)
        lives = bool(posted.line(committed))
        is_chain = parents == list(range(-1, len(tokens) - 1))
        tree = DraftTree(source, base, tokens, None if is_chain else parents, posted.confidences)
        assert self.drafts[sequence].post(tree) == lives
        self.expected[sequence] += expected
        older = self.posted[sequence].get(source)
        older_lives = older is not None and bool(older.line(committed))
        if lives and not (older_lives and (base, len(tokens)) < (older.base, len(older.tokens))):
            self.posted[sequence][source] = posted

    @rule(sequence=sequences)
    def ask_for_outcomes(self, sequence):
        outcomes = scored(self.drafts[sequence])
        assert sorted(outcomes, key=repr) == sorted(self.expected[sequence], key=repr)
        self.expected[sequence].clear()

    def n_tried(self, sequence, source):
        """The number of positions that were tried."""
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
            best = Given(machine_chance).best(self.drafts[sequence])
            value = sum(survival(best))
            maximum = max((value_of(source, lines) for source in lines), default=0.0)
            assert value == pytest.approx(maximum)
            tokens = [each.token for each in best]
            assert not lines or any(tokens == [token for token, _ in line] for line in lines.values())

    @invariant()
    def each_source_proposes_its_line(self):
        for sequence, committed in self.committed.items():
            for source, posted in self.posted[sequence].items():
                branch = self.drafts[sequence].branch(source)
                assert [(each.token, each.confidence) for each in branch] == posted.line(committed)

    @invariant()
    def only_live_drafts_are_kept(self):
        for drafts in self.drafts.values():
            drafts.check_integrity()


TestDraftsMachine = DraftsMachine.TestCase
