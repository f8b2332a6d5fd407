"""Piped lines come one by one, without their ends."""

import io

import pytest

from chat.line_reader import PipeReader


def test_lines_come_in_order_and_end():
    lines = PipeReader(io.StringIO("one\r\n\ntwo"))
    assert [lines.read() for _ in range(3)] == ["one", "", "two"]
    with pytest.raises(EOFError):
        lines.read()
