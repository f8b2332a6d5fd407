import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import KvCacheFullError
from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.llama.span import Span
from shared.translation.byte_vocabulary import ByteVocabulary
from shared.translation.projection import Projection
from shared.translation.translating_model import TranslatingModel
from tests.shared.translation.knowing_model import KnowingModel
from tests.shared.translation.toys import (
    choose,
    follow,
    generator,
    longest_first,
    random_text,
    random_vocabulary,
)

RECURRENT = MemoryTraits(n_rollback=0, n_step_checkpoints=6)
ROLLBACK = MemoryTraits(n_rollback=3, n_step_checkpoints=6)
WINDOW = MemoryTraits(n_rollback=8)


def translating(seed, n_text, n_target=60, n_draft=60, **options):
    """(translating model, its own model, the text in tokens of the target)."""
    rng = generator(seed)
    text = random_text(rng, n_text)
    draft, target = random_vocabulary(rng, n_draft), random_vocabulary(rng, n_target)
    own = KnowingModel(draft, text, **({"n_batch": 64, "doubt": 0.01} | options))
    return TranslatingModel(own, Projection(draft, target)), own, target.encode(text)


def share_followed(model, tokens):
    """The share of a text that is drafted. The model does not know what follows the end."""
    n = len(tokens) - 15
    return follow(model, tokens, 5, n) / n


@pytest.mark.parametrize("n_draft", [0, 10, 60, 400])
@pytest.mark.parametrize("seed", range(3))
def test_a_model_that_knows_the_text_drafts_nearly_all_of_it(seed, n_draft):
    model, _, tokens = translating(seed, 300, n_draft=n_draft)
    assert share_followed(model, tokens) >= 0.99


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lost", [b"c", b"ce"])
def test_what_the_draft_model_cannot_read_costs_little_more_than_itself(seed, lost):
    """The model reads a stand-in, and the rest of the text is drafted as before."""
    rng = generator(seed)
    text = random_text(rng, 300, "ab " * 4 + "cde")
    draft = without(random_vocabulary(rng, 60), lost)
    target = random_vocabulary(rng, 20)
    seen = b"".join(draft.pieces[token] for token in draft.encode(text))
    model = TranslatingModel(KnowingModel(draft, seen, doubt=0.01), Projection(draft, target))
    tokens = target.encode(text)
    n = len(tokens) - 15
    n_unreadable = sum(any(byte in lost for byte in target.pieces[token]) for token in tokens[5 : 5 + n])
    assert 0 < n_unreadable < n / 2
    assert follow(model, tokens, 5, n) >= n - 2 * n_unreadable


def test_a_draft_model_that_reads_small_letters_only_drafts_them():
    rng = generator(2)
    written = random_text(rng, 400)
    text = b" ".join(word.title() if rng.random() < 0.2 else word for word in written.split(b" "))
    pieces = [piece for piece in random_vocabulary(rng, 60).pieces if not 65 <= min(piece) <= 90]
    lower = longest_first(pieces)
    draft = ByteVocabulary(pieces, lambda words: lower.encode(words.lower().encode()))
    target = random_vocabulary(rng, 20)
    model = TranslatingModel(KnowingModel(draft, written, doubt=0.01), Projection(draft, target))
    tokens = target.encode(text)
    n = len(tokens) - 15
    n_capital = sum(target.pieces[token] != target.pieces[token].lower() for token in tokens[5 : 5 + n])
    assert 0 < n_capital < n / 2
    assert follow(model, tokens, 5, n) >= n - 2 * n_capital


def test_a_draft_ends_before_what_the_target_cannot_write():
    rng = generator(3)
    text = b"a b" + b"c" * 20
    draft, target = random_vocabulary(rng, 0), without(random_vocabulary(rng, 0), b"c")
    model = TranslatingModel(KnowingModel(draft, text), Projection(draft, target))
    (rows,) = model.decode([Span(0, 0, target.encode(b"a "), 1)])
    assert choose(model, rows[0]) == target.token_of(b"b")
    (rows,) = model.decode([Span(0, 2, target.encode(b"b"), 1)])
    assert rows[0].max() < np.log(0.01)


def without(vocabulary, lost):
    return longest_first([piece for piece in vocabulary.pieces if not any(byte in lost for byte in piece)])


def test_a_draft_token_is_decoded_once():
    model, own, tokens = translating(1, 300)
    share_followed(model, tokens)
    text = b"".join(model.pieces[token] for token in tokens)
    assert own.n_decodes <= 1.05 * len(own.vocabulary.encode(text))


def test_tokens_inside_a_draft_token_need_no_pass():
    model, own, tokens = translating(1, 300, n_target=0, n_draft=400)
    share_followed(model, tokens)
    assert own.n_decodes <= 0.6 * (len(tokens) - 15)


@pytest.mark.parametrize("traits", [RECURRENT, ROLLBACK, WINDOW], ids=["recurrent", "rollback", "window"])
def test_models_that_cannot_be_cut_back_draft_the_same(traits):
    model, _, tokens = translating(3, 200, traits=traits)
    assert share_followed(model, tokens) >= 0.99


@given(seed=st.integers(0, 10**6), traits=st.sampled_from([PLAIN, RECURRENT, ROLLBACK, WINDOW]))
def test_whatever_is_cut_back_and_copied_the_memory_holds_the_beginning_of_the_text(seed, traits):
    rng = generator(seed + 1)
    model, own, _ = translating(seed, 80, traits=traits, n_batch=16, n_ctx=48)
    tokens = [[] for _ in range(own.n_slots)]
    for _ in range(30):
        slot = rng.randrange(own.n_slots)
        n_keep = rng.choice([len(tokens[slot]), rng.randint(0, len(tokens[slot]))])
        model.trim(slot, n_keep)
        del tokens[slot][n_keep:]
        other = rng.randrange(own.n_slots)
        if not tokens[slot] and tokens[other]:
            n_shared = rng.randint(1, len(tokens[other]))
            model.copy(other, slot, n_shared)
            tokens[slot] = tokens[other][:n_shared]
        new = [rng.randrange(model.n_vocab) for _ in range(rng.randint(1, 6))]
        (rows,) = model.decode([Span(slot, len(tokens[slot]), new, 1)])
        tokens[slot] += new
        choose(model, rows[0], slot)
        model.check_integrity()
        data = b"".join(model.pieces[token] for token in tokens[slot])
        held = own.data(slot)
        assert np.isfinite(rows).all()
        assert data.find(held[: len(data)]) >= 0 or any(data.endswith(held[:n]) for n in range(1, len(held)))


def test_several_slots_share_a_pass():
    model, own, tokens = translating(5, 100)
    model.decode([Span(0, 0, tokens[:4], 1), Span(1, 0, tokens[:6], 1)])
    assert own.n_decodes == 1


def test_a_long_prompt_is_decoded_in_several_batches():
    model, own, tokens = translating(5, 300, n_batch=16)
    (rows,) = model.decode([Span(0, 0, tokens[:60], 1)])
    assert own.n_decodes > 1
    assert choose(model, rows[0]) == tokens[60]


def test_a_prompt_in_parts_is_as_good_as_whole():
    model, _, tokens = translating(6, 200)
    for start in range(0, 40, 8):
        model.decode([Span(0, start, tokens[start : start + 8], 0)])
    (rows,) = model.decode([Span(0, 40, tokens[40:41], 1)])
    assert choose(model, rows[0]) == tokens[41]


def test_a_side_branch_goes_on_from_the_shared_beginning():
    model, own, tokens = translating(7, 200)
    model.decode([Span(0, 0, tokens[:30], 1)])
    model.copy(0, 1, 25)
    n_before = own.n_decodes
    (rows,) = model.decode([Span(1, 25, tokens[25:28], 1)])
    assert choose(model, rows[0], slot=1) == tokens[28]
    assert own.n_decodes <= n_before + 4


def test_a_full_cache_leaves_the_slots_as_they_were():
    model, own, tokens = translating(8, 100)
    model.decode([Span(0, 0, tokens[:10], 1)])
    decode, own.decode = own.decode, _full
    with pytest.raises(KvCacheFullError):
        model.decode([Span(0, 10, tokens[10:20], 1)])
    own.decode = decode
    (rows,) = model.decode([Span(0, 10, tokens[10:20], 1)])
    assert choose(model, rows[0]) == tokens[20]


def test_a_full_cache_ends_a_look_ahead():
    model, own, tokens = translating(8, 100, n_draft=0)
    (rows,) = model.decode([Span(0, 0, tokens[:10], 1)])
    own.decode = _full
    assert model.look_ahead({0: int(rows[0].argmax())}) == {}
    model.check_integrity()


def _full(_spans):
    raise KvCacheFullError("no room")
