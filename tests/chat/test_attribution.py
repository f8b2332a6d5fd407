"""A rendering keeps the marks of the words that were written."""

import pytest

from chat.attribution import AttributedText, transfer


def marked(*parts):
    text = AttributedText()
    for part, source in parts:
        text.append(part, source)
    return text


def shown_as(written, shown):
    """The words of `shown` with a source."""
    marks = transfer(written.text, written.sources, shown)
    assert len(marks) == len(shown)
    return "".join(char if mark else "_" for char, mark in zip(shown, marks, strict=True))


def test_a_text_that_is_shown_as_it_was_written_keeps_its_marks():
    assert shown_as(marked(("One ", None), ("two", "b"), (".", None)), "One two.") == "____two_"


def test_markup_that_is_dropped_moves_no_mark():
    assert (
        shown_as(marked(("**One** ", None), ("*two*", "b"), (" one", None)), "One two one") == "____two____"
    )


def test_a_bullet_that_was_not_written_is_not_marked():
    assert shown_as(marked(("- One and more", None), (" • two", "b")), "• One") == "_____"


def test_a_word_in_two_lines_is_marked_in_both():
    assert shown_as(marked(("super", None), ("cali", "b")), "sup\nercali") == "______cali"[:6] + "cali"


def test_the_second_of_two_equal_words_has_its_own_source():
    assert shown_as(marked(("so ", None), ("so", "b")), "so so") == "___so"


@pytest.mark.parametrize("shown", ["", "other words", "日本"])
def test_what_was_not_written_is_not_marked(shown):
    assert set(shown_as(marked(("One", "b")), shown)) <= {"_"}


def test_taking_cuts_text_and_marks():
    text = marked(("ab", None), ("cd", "b"))
    taken = text.take(3)
    assert (taken.text, taken.sources) == ("abc", [None, None, "b"])
    assert (text.text, text.sources) == ("d", ["b"])
