import json

import pytest

from lead.http.middleware.nesting import is_deeper


@pytest.mark.parametrize("text", [b"[[[]]]", b'{"a": [{"b": 1}]}', b'[1, {"x": [[2], [3]]}'[:-1] + b"}]"])
def test_depth_is_counted_through_arrays_and_objects(text):
    def depth(value):
        if isinstance(value, dict):
            value = list(value.values())
        return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0

    deep = depth(json.loads(text))
    assert is_deeper(text, deep - 1)
    assert not is_deeper(text, deep)


def test_neighbours_are_not_nested():
    assert not is_deeper(b"[" + b"[]," * 100 + b"[]]", 2)


@pytest.mark.parametrize("text", [rb'["[[[["]', rb'["\"[[[["]', rb'["\\", "[[[["]', rb'{"[[[[": "{{{{"}'])
def test_brackets_in_strings_do_not_count(text):
    assert not is_deeper(text, 1)


def test_a_string_that_ends_in_a_backslash_hides_nothing_behind_it():
    assert is_deeper(rb'["\\", [[[["]', 4)


@pytest.mark.parametrize("junk", [b'"' * 9 + b"[" * 9, b'["\\', b"]]]][[[[", b'["abc', b"\xff[[", b""])
def test_what_is_no_json_is_no_trouble(junk):
    assert not is_deeper(junk, 9)


@pytest.mark.parametrize("piece", [b'\\"', b'"', b"\\", b'"\\', b"[]", b'[""', b"a"])
def test_it_takes_linear_time(piece):
    """Half a megabyte that a backtracking pattern would chew on for hours."""
    is_deeper(b"[" * 50 + b'"' + piece * (1 << 18), 100)
