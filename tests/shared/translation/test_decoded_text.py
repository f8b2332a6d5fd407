import numpy as np

from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.slot_cache import SlotCache
from shared.translation.byte_vocabulary import ReadToken
from shared.translation.decoded_text import DecodedText

PIECES = [b"", b"a", b"bc"]
BOS = 0


def decoded(*tokens, n_logits=1, traits=PLAIN):
    text = DecodedText(SlotCache(0, traits), [BOS])
    add(text, *tokens, n_logits=n_logits)
    return text


def add(text, *tokens, n_logits):
    text.add([ReadToken(token, PIECES[token]) for token in tokens], np.zeros((n_logits, 3), np.float32))


def test_only_the_last_distributions_are_kept():
    text = decoded(BOS, *[1] * 9, n_logits=10)
    assert [n for n in range(11) if text.following(n)] == [5, 6, 7, 8, 9, 10]


def test_a_path_ends_where_no_distribution_is_known():
    text = decoded(BOS, 1, n_logits=1)
    add(text, 1, 1, n_logits=1)
    assert [node.end for node in text.path(2, 4)] == [1]


def test_inside_a_word_that_is_read_otherwise_nothing_is_known_to_follow():
    text = decoded(BOS, 1, n_logits=1)
    text.add([ReadToken(2, b"Bc!"), ReadToken(1, b""), ReadToken(1, b"")], np.zeros((3, 3), np.float32))
    assert [n for n in range(6) if text.following(n)] == [2, 5]
    assert (text.n_until(3), text.n_until(4)) == (2, 5)


def test_a_cut_removes_text_and_distributions():
    text = decoded(BOS, 2, 1, n_logits=2)
    assert text.cut(2) == []
    assert (text.data, text.following(3)) == (b"bc", None)
    text.check_integrity()


def test_what_the_memory_loses_beyond_a_cut_must_be_decoded_again():
    text = decoded(BOS, 2, 1, traits=MemoryTraits(n_rollback=0, n_step_checkpoints=2))
    assert text.cut(2) == [(BOS, b""), (2, b"bc")]
    assert len(text) == 0
    text.check_integrity()


def test_a_new_beginning_has_another_base():
    text = decoded(BOS, 2, 1)
    text.restart(5)
    text.cache.take_edits()
    add(text, BOS, 1, n_logits=0)
    assert text.end_of(2) == 6


def test_another_slot_can_go_on_from_the_first_tokens():
    source, text = decoded(BOS, 2, 1, n_logits=3), DecodedText(SlotCache(1), [BOS])
    text.copy_from(source, 2)
    text.check_integrity()
    assert (text.data, text.cache.tokens, text.following(2) is None) == (b"bc", [BOS, 2], False)
