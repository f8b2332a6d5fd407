"""Following one grammar, in a process of its own: what the kernel does if that takes too much."""

import itertools
import os
import signal
import tempfile
from multiprocessing import Pipe

import pytest

from shared.sampling import grammar_follower
from shared.sampling.grammar_follower import follow
from shared.sandbox import Limits, fork

GRAMMAR = b"start: /[a-z]+/\n"


@pytest.fixture
def status(vocabulary):
    """The status in which a process ends that follows a grammar nobody asks about."""

    def status():
        ours, theirs = Pipe()
        with theirs, ours, tempfile.TemporaryFile() as file:
            file.write(GRAMMAR)
            file.seek(0)
            text = os.dup(file.fileno())
            pid = fork(lambda: follow(vocabulary, theirs, text, Limits(), is_optional=False), [ours.fileno()])
            os.close(text)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    return status


def test_it_ends_when_nobody_asks_any_more(status):
    assert status() == 0


def test_the_kernel_ends_it_if_compiling_takes_too_long(status, monkeypatch):
    monkeypatch.setattr(grammar_follower, "_COMPILE_SECONDS", 0.01)
    monkeypatch.setattr(grammar_follower, "_compile", lambda *_, **__: sum(itertools.count()))
    assert status() == -signal.SIGPROF
