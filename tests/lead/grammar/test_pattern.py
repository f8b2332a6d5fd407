import contextlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.grammar import schema_to_gbnf
from lead.grammar.pattern import InvalidPatternError, UnsupportedPatternError, pattern_body
from lead.settings.limits import RequestLimits

TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "aaaa",
    "A",
    "7",
    "42",
    "2024",
    "-",
    "a-b",
    '"',
    "\\",
    "\n",
    "a b",
    "ä",
    "x.y",
    "]",
]
PATTERNS = [
    "^a$", "^ab?c*$", "^(a|b)+$", "^[a-c]{2,3}$", "^[^a-z]$", r"^\d{2,}$", r"^\w+$", r"^\W$", r"^\s$",
    "^.$", "^.*$", '^"$', r"^\\$", r"^\n$", r"^[\n\"]$", r"^\x61$", r"^\u0061$",
    "b", "^a", "c$", r"\.", "^(?:ab|)c?$", "^(?<name>a)b$", r"^[\]]$", "^[a-]+$", "^a{2}a{0,2}$",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_what_it_means_in_a_regular_expression(accepts, pattern):
    grammar = schema_to_gbnf({"type": "string", "pattern": pattern}, RequestLimits())
    python = re.compile(pattern.replace("(?<", "(?P<").replace("$", r"\Z"), re.ASCII)
    for text in TEXTS:
        written = json.dumps(text, ensure_ascii=False)
        assert accepts(grammar, written) == bool(python.search(text)), (pattern, text)


@pytest.mark.parametrize(
    "pattern", ["(", ")", "a)b", "[a", "*a", "a**", "a{3,2}", "\\", r"\x1", "[b-a]", "(?<n"]
)
def test_what_is_no_regular_expression_is_told_apart(pattern):
    with pytest.raises(InvalidPatternError):
        pattern_body(pattern, "char")


@pytest.mark.parametrize(
    "pattern", ["(?=a)", "(?!a)", "(?<=a)", r"(a)\1", r"\bword", "a^b", "a$b", "a{", "a{9999}", r"\p{L}"]
)
def test_what_no_grammar_can_say_is_told_apart(pattern):
    with pytest.raises(UnsupportedPatternError):
        pattern_body(pattern, "char")


@given(st.text(alphabet='ab^$()[]{}|*+?.\\,-0129dxu\n"', max_size=12))
def test_any_text_is_a_pattern_or_a_clear_error(text):
    with contextlib.suppress(InvalidPatternError, UnsupportedPatternError):
        pattern_body(text, "char")
