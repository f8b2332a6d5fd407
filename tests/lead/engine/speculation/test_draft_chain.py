"""A chain of draft tokens can be shortened."""

from lead.engine.speculation.draft_chain import EMPTY_CHAIN, DraftChain


def test_a_chain_is_cut_with_its_sources_and_probabilities():
    whole = DraftChain((1, 2, 3), ("a", "b", "a"), (0.9, 0.8, 0.7))
    assert whole.cut(2) == DraftChain((1, 2), ("a", "b"), (0.9, 0.8))
    assert whole.cut(0) == EMPTY_CHAIN
    assert whole.cut(9) == whole
