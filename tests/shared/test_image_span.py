from shared.image_span import ImageSpan, image_start, row_identities, without_images

N_VOCAB = 1_000_000


def test_identities_are_above_all_vocabularies_and_fit_into_31_bits():
    found = row_identities("a", 4096)
    assert min(found) >= N_VOCAB
    assert max(found) < 1 << 31


def test_the_same_rows_have_the_same_identities_and_others_have_others():
    found = row_identities("a", 77)
    assert row_identities("a", 77) == found
    assert not set(found) & set(row_identities("b", 77))
    assert len(set(found)) == 77


def test_a_span_ends_after_its_last_row():
    assert ImageSpan(start=3, n_rows=77, n_positions=11, key="a", width=7).end == 80


def test_no_cut_divides_an_image():
    text = [1, 2, *row_identities("a", 3), *row_identities("b", 2), 4]
    assert [image_start(text, n) for n in range(len(text) + 1)] == [0, 1, 2, 2, 2, 5, 5, 7, 8]


def test_rows_of_images_are_left_out():
    assert without_images([1, *row_identities("a", 3), 2, *row_identities("b", 1)]) == [1, 2]
