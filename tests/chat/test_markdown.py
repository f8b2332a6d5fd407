import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from chat.attribution import AttributedText, SourceColors
from chat.markdown import THEME, last_block, render


def lines(text, *, width=40, source=None):
    """The rendered segments."""
    block = AttributedText()
    block.append(text, source)
    console = Console(file=io.StringIO(), width=width, force_terminal=True, theme=THEME)
    return render(block, console, SourceColors())


def plain(text, **options):
    return ["".join(segment.text for segment in line).rstrip() for line in lines(text, **options)]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("# Title\n\nOne **two** `three`.", ["Title", "", "One two three."]),
        ("One\ntwo", ["One", "two"]),
        ("1. a\n2. b\n   - c", [" 1 a", " 2 b", "    • c"]),
        ("```python\nif a:\n    b\n```", ["  if a:", "      b"]),
        ("A <b>tag</b>\n\n<div>\n</div>", ["A <b>tag</b>", "", "<div>", "</div>"]),
        ("[words](https://example.org)", ["words (https://example.org)"]),
        ("> so", ["▌ so"]),
        ("", []),
        ("\n\n", []),
    ],
)
def test_markdown_is_rendered(written, shown):
    assert plain(written) == shown


def test_lines_fit_a_narrow_terminal():
    assert max(map(len, plain("words " * 20 + "\n\n```\n" + "code " * 20 + "\n```", width=12))) <= 12


@pytest.mark.parametrize(
    "hostile",
    ["\x1b[2J", "&#27;[2J", "&#x9b;2J", "`\x1b[2J`", "```\n\x1b[2J\n```", "[a](\x1b]8;;x)", "[a](&#27;x)"],
)
def test_control_characters_are_sanitized(hostile):
    shown = "\n".join(plain(hostile))
    assert not {"\x1b", "\x9b"} & set(shown)


def test_links_carry_no_hidden_address():
    assert not any(s.style and s.style.link for line in lines("[a](https://x.org)") for s in line)


def test_accepted_words_have_the_color_of_their_source():
    (line,) = lines("*One*", source="attic")
    word = line[0]
    assert (word.text, word.style.color.name, word.style.italic) == ("One", "green", True)


def test_code_is_highlighted_only_in_texts_without_sources():
    def colors(source):
        code = AttributedText()
        code.append("Look:\n\n", source)
        code.append("```python\nwhile True: pass\n```", None)
        console = Console(file=io.StringIO(), width=40, force_terminal=True, theme=THEME)
        *_, last = render(code, console, SourceColors())
        return {s.style.color.name for s in last if s.style and s.style.color} - {"default"}

    assert colors(None)
    assert not colors("attic")


@given(st.text(alphabet="ab#*_`>-|1.) \n\t~[](!&;:\\<\x1b", max_size=60), st.integers(1, 30))
def test_any_text_is_rendered(text, width):
    for line in lines(text, width=width, source="attic"):
        assert "\x1b" not in "".join(segment.text for segment in line)


def test_text_that_rich_cannot_render_is_shown_unchanged(monkeypatch):
    monkeypatch.setattr("chat.markdown._Document", lambda *_, **__: 1 / 0)
    assert plain("**One**") == ["**One**"]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("One\ntwo\n", 0),
        ("One\n\n", 0),
        ("One\n\nTwo", 0),  # may become anything yet
        ("One\n\nTwo\n", 5),
        ("One\n-", 0),
        ("- a\n\n- b\n", 0),
        ("One\n\n```\na\n\nb\n", 5),
        ("```\na\n```\nTwo\n", 10),
        ("", 0),
    ],
)
def test_a_block_is_the_last_until_another_begins(text, start):
    assert last_block(text) == start
