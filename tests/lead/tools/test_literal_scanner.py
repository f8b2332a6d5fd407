import pytest

from lead.tools.literal_scanner import LiteralScanner

OWN = ('<|"|>', '<|"|>')


def end(text, quotes=("", ""), size=None):
    """Where the literal at the beginning ends, if the text grows by `size` characters at a time."""
    scanner = LiteralScanner(quotes)
    found = (scanner.end(text[:n]) for n in range(size or len(text), len(text) + (size or 1), size or 1))
    return next((each for each in found if each is not None), None)


@pytest.mark.parametrize("size", [1, 3, None])
@pytest.mark.parametrize(
    ("value", "quotes"),
    [
        ("17", ("", "")),
        ("'it,)\\'s'", ("'", "'")),
        ('"a\\"),"', ("'", "'")),
        ("[1, (2, {'a': ')'})]", ("'", "'")),
        ('<|"|>a,}<b"<|"|>', OWN),
        ('{k:<|"|>],<|"|>,n:[1]}', OWN),
        ('{"k": ")}"}', OWN),
    ],
)
def test_a_value_ends_before_a_comma_or_a_bracket_that_is_not_its_own(value, quotes, size):
    for after in (",", ")", "}"):
        assert end(value + after, quotes, size) == len(value)


@pytest.mark.parametrize("text", ["17", "'a", "'a\\", "[1, 2", '<|"|>a,', '<|"'])
def test_a_value_that_has_not_ended_waits_for_more(text):
    assert end(text, OWN if "<" in text else ("'", "'")) is None
