"""A draft tree's cursor follows the committed tokens; what hangs below it may still come true."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.engine.speculation.draft_tree import DraftToken, DraftTree

# 1 ┬ 2 ─ 3
#   └ 4 ─ 5
# 6 ─ 7
TOKENS = [1, 2, 3, 4, 5, 6, 7]
PARENTS = [-1, 0, 1, 0, 3, -1, 5]


def tree():
    return DraftTree(10, TOKENS, PARENTS)


def main_branch(tree):
    return [draft.token for draft in tree.main_branch()]


def after(tree, *tokens):
    for token in tokens:
        tree.step(token)
    return tree


def test_without_parents_each_token_follows_the_one_before_it():
    assert main_branch(DraftTree(3, [7, 8, 9])) == [7, 8, 9]


def test_a_chain_and_the_same_chain_with_parents_are_the_same():
    chain, spelt_out = DraftTree(0, [7, 8, 9]), DraftTree(0, [7, 8, 9], [-1, 0, 1])
    for token in (7, 8, 9):
        assert list(chain.main_branch()) == list(spelt_out.main_branch())
        assert chain.next() == spelt_out.next()
        chain.step(token)
        spelt_out.step(token)
    assert not chain.alive
    assert not spelt_out.alive


def test_the_main_branch_takes_the_first_child_at_every_fork():
    assert main_branch(tree()) == [1, 2, 3]


def test_a_right_token_moves_the_cursor_along_the_main_branch():
    assert main_branch(after(tree(), 1)) == [2, 3]


@pytest.mark.parametrize(("committed", "left"), [([1, 4], [5]), ([6], [7])])
def test_a_recovered_token_moves_the_cursor_to_the_branch_that_begins_with_it(committed, left):
    assert main_branch(after(tree(), *committed)) == left


@pytest.mark.parametrize("committed", [[9], [1, 9], [1, 2, 9], [2], [1, 6]])
def test_a_token_that_no_branch_begins_with_kills_the_tree(committed):
    dead = after(tree(), *committed)
    assert (dead.alive, dead.next(), main_branch(dead)) == (False, None, [])


def test_a_dead_tree_stays_dead():
    assert not after(tree(), 9, 1, 2, 6, 7).alive


def test_a_tree_that_has_come_true_to_its_end_is_dead():
    assert not after(tree(), 1, 2, 3).alive


def test_an_empty_tree_is_dead():
    empty = DraftTree(4, [])
    assert (empty.alive, empty.next(), len(empty)) == (False, None, 0)


def test_what_is_proposed_is_the_line_s_first_token_with_its_confidence():
    confident = DraftTree(0, TOKENS, PARENTS, [0.9, 0.8, 0.7, 0.2, 0.6, 0.1, 0.5])
    assert confident.next() == DraftToken(1, 0.9)
    assert after(confident, 1, 4).next() == DraftToken(5, 0.6)


def test_without_confidences_none_is_stated():
    assert tree().next() == DraftToken(1, None)


def test_its_length_counts_side_branches_and_the_past():
    assert len(after(tree(), 1, 4)) == 7


def test_of_two_branches_with_the_same_token_the_first_is_taken():
    assert main_branch(after(DraftTree(0, [1, 1, 2, 3], [-1, -1, 0, 1]), 1)) == [2]


@st.composite
def trees(draw):
    tokens = draw(st.lists(st.integers(0, 3), max_size=12))
    parents = [draw(st.integers(-1, i - 1)) for i in range(len(tokens))]
    return tokens, parents


@given(trees(), st.lists(st.integers(0, 3), max_size=6))
def test_any_tree_is_alive_as_long_as_the_text_lies_in_it_and_something_follows(spec, text):
    tokens, parents = spec
    node = -1
    cursor = after(DraftTree(0, tokens, parents), *text)
    for token in text:
        matching = [i for i, parent in enumerate(parents) if parent == node and tokens[i] == token]
        node = matching[0] if matching else None
        if node is None:
            break
    assert cursor.alive == (node is not None and node in parents)
    assert bool(main_branch(cursor)) == cursor.alive
