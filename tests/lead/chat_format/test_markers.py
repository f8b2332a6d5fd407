import pytest

from lead.chat_format.markers import partial_marker_length, split_at_marker

MARKERS = ("<a>", "<a>b", "cd")


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("xy", ("xy", None, "")),
        ("xy<a>z", ("xy", "<a>", "z")),
        ("xy<a>bz", ("xy", "<a>b", "z")),  # of those at one place, the longest
        ("xcdy<a>", ("x", "cd", "y<a>")),  # the first in the text
        ("xy<", ("xy", None, "<")),
        ("xy<a>", ("xy", None, "<a>")),  # it may become the longer one
        ("", ("", None, "")),
    ],
)
def test_text_is_split_at_the_first_marker_that_is_certain(text, split):
    assert split_at_marker(text, MARKERS, complete=False) == split


@pytest.mark.parametrize(("text", "n"), [("x", 0), ("<", 1), ("<a", 2), ("<a>", 3), ("<a>b", 0), ("c<", 1)])
def test_the_end_that_may_become_a_marker_is_measured(text, n):
    assert partial_marker_length(text, MARKERS) == n


@pytest.mark.parametrize(
    ("text", "split"), [("xy<", ("xy<", None, "")), ("xy<a>", ("xy", "<a>", "")), ("x", ("x", None, ""))]
)
def test_nothing_is_held_back_of_a_complete_text(text, split):
    assert split_at_marker(text, MARKERS, complete=True) == split
