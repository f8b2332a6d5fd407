import pytest

from shared.image_span import ImageSpan
from shared.llama.positions import Positions

IMAGE = ImageSpan(start=3, n_rows=8, n_positions=2, key="a", width=4)
LATER = ImageSpan(start=12, n_rows=6, n_positions=3, key="b", width=2)
ALL = [0, 1, 2, 3, *[3] * 7, 5, 6, *[6] * 5, 9, 10]


@pytest.fixture
def positions():
    """The positions of three slots, of which the first has two images."""
    found = Positions(3)
    found.add_image(0, IMAGE)
    found.add_image(0, LATER)
    return found


def of(positions, slot, n=None):
    return [positions.position_of(slot, row) for row in range(n or len(ALL))]


def test_rows_of_a_text_without_images_are_positions(positions):
    assert of(positions, 1) == list(range(len(ALL)))


def test_what_follows_an_image_is_at_the_position_after_it(positions):
    assert of(positions, 0) == ALL


def test_an_image_with_a_position_for_each_row_changes_nothing(positions):
    positions.add_image(1, IMAGE.model_copy(update={"n_positions": 8}))
    assert not positions.has_jumps(1)


def test_what_is_cut_off_has_no_part_in_it(positions):
    positions.trimmed(0, 12)
    assert of(positions, 0, 30)[12:] == list(range(6, 24))


def test_a_copy_has_the_images_that_it_has_rows_of(positions):
    positions.copied(0, 1, 12)
    assert of(positions, 1, 12) == ALL[:12]
    assert positions.position_of(1, 20) == 14


@pytest.mark.parametrize("cut", range(1, len(ALL)))
def test_parts_that_were_stored_bring_them_back(positions, cut):
    """A part may also end inside an image."""
    parts = [positions.packed(0, 0, cut), positions.packed(0, cut, len(ALL))]
    for part in parts:
        positions.unpack(2, part)
    assert of(positions, 2) == ALL


def test_of_a_text_without_images_nothing_is_stored(positions):
    assert positions.packed(1, 0, 100) == b""


def test_other_bytes_are_refused(positions):
    with pytest.raises(ValueError, match="7 bytes are not positions"):
        positions.unpack(0, b"7 bytes")
