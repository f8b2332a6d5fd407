from shared.image_span import ImageSpan, row_identities

N_VOCAB = 1000


def test_identities_are_above_the_vocabulary_and_fit_into_32_bits():
    found = row_identities("a", 4096, N_VOCAB)
    assert min(found) >= N_VOCAB
    assert max(found) < 1 << 31


def test_the_same_rows_have_the_same_identities_and_others_have_others():
    found = row_identities("a", 77, N_VOCAB)
    assert row_identities("a", 77, N_VOCAB) == found
    assert not set(found) & set(row_identities("b", 77, N_VOCAB))
    assert len(set(found)) == 77


def test_a_span_ends_after_its_last_row():
    assert ImageSpan(start=3, n_rows=77, n_positions=11, key="a", width=7).end == 80
