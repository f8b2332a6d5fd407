import unicodedata

import pytest

from shared.terminal import error_reason, one_line, sanitize, size_text, wrapped


@pytest.mark.parametrize(
    ("n_bytes", "shown"),
    [(35_800, "0.0358 MB"), (999.4e6, "999 MB"), (999.6e6, "1.00 GB"), (-2e9, "-2.00 GB")],
)
def test_a_size_has_three_digits(n_bytes, shown):
    assert size_text(n_bytes) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        *(("\x1b[2J", "␛[2J"), ("\x1b]0;title\x07", "␛]0;title␇"), ("\x9b31m", "�31m")),
        *(("\x9d0;title\x9c", "�0;title�"), ("harmless\rharmful", "harmless␍harmful"), ("ab\b\b", "ab␈␈")),
        *(("\x00", "␀"), ("\x7f", "␡"), ("\u202etxt.exe\u202c", "�txt.exe�"), ("\u2066a\u2069", "�a�")),
        *(("\u206e", "�"), ("txt\u200f.\u200eexe\u061c", "txt.exe"), ("\u2028", "�"), ("\ud800", "�")),
    ],
)
def test_control_characters_are_shown_and_do_nothing(text, shown):
    assert sanitize(text) == shown


@pytest.mark.parametrize("text", ["a\n\tb\n", "Übergröße", "日本語", "👩‍👩‍👧", "שלום", "e\u0301", "�"])
def test_text_stays_as_it_is(text):
    assert sanitize(text) == text


def test_no_control_character_of_unicode_is_left():
    everything = sanitize("".join(map(chr, range(0x110000))))
    assert {c for c in everything if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"}} == {"\n", "\t"}


def test_no_character_that_only_changes_directions_is_left():
    everything = sanitize("".join(map(chr, range(0x110000))))
    directional = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    assert {c for c in everything if unicodedata.bidirectional(c) in directional} == set()
    assert not set("\u061c\u200e\u200f") & set(everything)


def test_what_a_peer_says_becomes_one_line_of_bounded_length():
    assert one_line("a\x1b[2J\r\nb\tc") == "a␛[2J␍ b c"
    assert one_line("x" * 2000) == "x" * 999 + "…"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "too\\nlong"}}', "too long"),
        (b'{"error": "no\\nupstream"}', "no upstream"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b'{"detail": [{"msg": "Field required"}]}', "HTTP 502"),
        (b'{"error": null}', "HTTP 502"),
        (b"[]", "HTTP 502"),
        (b"<html>", "HTTP 502"),
        (b"\xff", "HTTP 502"),
    ],
)
def test_an_answer_with_an_error_gives_its_reason_or_its_status(body, said):
    assert error_reason(body, 502) == said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("   hint  one two --three-four five", "   hint  one two\n         --three-four\n         five"),
        ("KV cache and  a b", "KV cache and  a b"),
        ("one two three four five", "one two three four\nfive"),
        ("averylongwordthatfitsnowhere", "averylongwordthatfitsnowhere"),
        ("a\n\nb", "a\n\nb"),
    ],
)
def test_lines_are_broken_between_words(text, expected):
    assert wrapped(text, 20) == expected
