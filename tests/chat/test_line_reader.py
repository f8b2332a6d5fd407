import io
import os
import pty
import termios

import pytest

from chat.line_reader import PipeReader, without_echo


def test_lines_come_in_order_and_end():
    lines = PipeReader(io.StringIO("one\r\n\ntwo"))
    assert [lines.read() for _ in range(3)] == ["one", "", "two"]
    with pytest.raises(EOFError):
        lines.read()


@pytest.fixture
def terminal():
    main, sub = pty.openpty()
    with os.fdopen(main, "wb", 0), os.fdopen(sub, "rb", 0) as file:
        yield file


def flags(terminal):
    return termios.tcgetattr(terminal)[3]


def test_keys_are_not_echoed_and_interrupts_still_work(terminal):
    with without_echo(terminal):
        assert not flags(terminal) & (termios.ECHO | termios.ICANON)
        assert flags(terminal) & termios.ISIG


def test_the_terminal_is_restored_after_ctrl_c(terminal):
    before = flags(terminal)
    with pytest.raises(KeyboardInterrupt), without_echo(terminal):
        raise KeyboardInterrupt
    assert flags(terminal) == before


def test_a_pipe_is_left_unchanged():
    with without_echo(io.StringIO()):
        pass
