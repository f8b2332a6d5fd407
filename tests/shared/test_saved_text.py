"""What a manifest says of a text."""

from shared.cache_edits import Snapshot
from shared.saved_text import SavedPart, SavedText

PART = SavedPart(kind="text", start=10, end=20, file="a-1", size=3, digest="d")


def test_a_part_holds_the_same_tokens_under_any_key():
    assert PART.holds(Snapshot("text", 1, 20, 10))
    assert PART.snapshot(7) == Snapshot("text", 7, 20, 10)
    assert not PART.holds(Snapshot("text", 1, 20, 11))
    assert not PART.holds(Snapshot("state", 1, 20, 10))


def test_it_is_read_as_it_was_written():
    text = SavedText(name="a", owner="me", tokens=[1, 2], n_prefill=1, parts=(PART,))
    assert SavedText.model_validate_json(text.model_dump_json()) == text
