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


@pytest.mark.parametrize(
    ("written", "shown", "sources"),
    [
        ([("**One** ", None), ("*two*", "b"), (" one", None)], "One two one", "____two____"),
        ([("- One and more", None), (" • two", "b")], "• One", "_____"),
        ([("super", None), ("cali", "b")], "sup\nercali", "______cali"),
        ([("so ", None), ("so", "b")], "so so", "___so"),
    ],
    ids=["markup is not rendered", "a bullet is added", "a word is broken", "two words are equal"],
)
def test_words_keep_their_sources_where(written, shown, sources):
    assert shown_as(marked(*written), shown) == sources


@pytest.mark.parametrize("shown", ["", "other words", "日本"])
def test_text_added_by_the_renderer_has_no_source(shown):
    assert set(shown_as(marked(("One", "b")), shown)) <= {"_"}


def test_take_splits_text_and_sources():
    text = marked(("ab", None), ("cd", "b"))
    taken = text.take(3)
    assert (taken.text, taken.sources) == ("abc", [None, None, "b"])
    assert (text.text, text.sources) == ("d", ["b"])
