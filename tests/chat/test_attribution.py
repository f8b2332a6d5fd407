"""Rendered words keep the source of the written ones."""

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


def test_markup_that_is_not_rendered_does_not_shift_sources():
    assert (
        shown_as(marked(("**One** ", None), ("*two*", "b"), (" one", None)), "One two one") == "____two____"
    )


def test_a_bullet_added_by_the_renderer_has_no_source():
    assert shown_as(marked(("- One and more", None), (" • two", "b")), "• One") == "_____"


def test_a_word_broken_over_two_lines_keeps_its_source():
    assert shown_as(marked(("super", None), ("cali", "b")), "sup\nercali") == "______cali"[:6] + "cali"


def test_the_second_of_two_equal_words_has_its_own_source():
    assert shown_as(marked(("so ", None), ("so", "b")), "so so") == "___so"


@pytest.mark.parametrize("shown", ["", "other words", "日本"])
def test_text_added_by_the_renderer_has_no_source(shown):
    assert set(shown_as(marked(("One", "b")), shown)) <= {"_"}


def test_take_splits_text_and_sources():
    text = marked(("ab", None), ("cd", "b"))
    taken = text.take(3)
    assert (taken.text, taken.sources) == ("abc", [None, None, "b"])
    assert (text.text, text.sources) == ("d", ["b"])
