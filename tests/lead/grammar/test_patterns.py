import re

import pytest

from lead.grammar.patterns import NotRegularError, plain_patterns

DECIMAL = r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"
"""The pattern that pydantic writes for `Decimal`."""
TEXTS = [
    *("", "a", "b", "ab", "foo", "fob", "football", "-a", "  ", " x", "Abcdefg1", "abcdefg1"),
    *("-.", "-1.5", ".5", "+", "7"),
]


@pytest.mark.parametrize(
    "pattern",
    [
        *(DECIMAL, r"^(?=.*[A-Z])(?=.*\d).{8,}$", r"^(?=(?:a|f).)[a-z]+$", r"^(?!\s*$).+", r"^a|b$"),
        *(r"^(?![a-z]+$).*$", r"^(?!-)[a-z-]+$", r"^(?!foo)[a-z]+$", r"^(?!\s)(?=.*o)\w+"),
    ],
)
def test_patterns_that_hold_together_match_what_the_one_does(pattern):
    plain = plain_patterns(pattern, "#")
    for text in TEXTS:
        assert all(re.search(each, text) for each in plain) == bool(re.search(pattern, text)), text


@pytest.mark.parametrize(
    "pattern", [r"(?<=a)b", r"\bfoo\b", r"^(a)\1$", r"^(?=a)b|c$", r"^(?!.*foo)", r"a(?=b)", r"^((?!a).)*$"]
)
def test_what_no_automaton_can_follow_is_refused_by_name(pattern):
    with pytest.raises(NotRegularError, match=r"^#/name/pattern: "):
        plain_patterns(pattern, "#/name")


def test_a_backslash_before_the_letter_b_is_no_word_boundary():
    assert plain_patterns(r"\\b", "#") == [r"\\b"]
