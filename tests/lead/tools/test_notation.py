import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.tools.notation import MAX_DEPTH, read_value, spellings, type_name

QUOTES = ('<|"|>', '<|"|>')
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6).filter(
    lambda text: QUOTES[0] not in text
)
NAMES = st.text("abc_1", min_size=1, max_size=4)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(10**20), 10**20), TEXTS)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)


@given(value=VALUES)
def test_values_are_read_in_each_way_that_a_template_writes_them(value):
    for text in spellings(value, ("", "")):
        assert read_value(text) == value


@given(value=VALUES)
def test_strings_may_have_quotes_of_the_templates_own(value):
    *_, bare = spellings(value, QUOTES)
    assert read_value(bare, QUOTES) == value


@pytest.mark.parametrize(
    "text", ["", "{", "[1", '"a', "{1}", '{"a" 1}', "[1 2]", "yes", "1 2", '"\\', '"\\u12"', "{a}", "[" * 500]
)
def test_other_text_is_no_value(text):
    with pytest.raises(ValueError):  # noqa: PT011 - it says in its own words what is missing
        read_value(text)


def test_nesting_is_limited():
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert read_value(deep) == json.loads(deep)
    with pytest.raises(ValueError, match="deeply"):
        read_value(f"[[{deep}]]")


def test_an_escape_that_is_none_stays_as_it_is():
    assert read_value(r"'a\d\n'") == "a\\d\n"


def test_a_truth_value_is_no_integer():
    assert [type_name(each) for each in (True, 1, 1.5, "", None, [], {})] == [
        *("boolean", "integer", "number", "string", "null", "array", "object")
    ]
