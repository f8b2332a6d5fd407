"""Following one grammar in a process of its own. The kernel ends it if it takes too much."""

import itertools
import os
import pickle
import signal
from multiprocessing import Pipe

import pytest

from shared.fork_server import fork
from shared.sampling import grammar_worker
from shared.sampling.grammar_handler import GrammarHandler
from shared.sandbox import WorkerLimits


@pytest.fixture
def status(vocabulary):
    """The exit status of a process that follows a grammar and gets no questions."""

    def status():
        ours, theirs = Pipe()

        def work():
            with pytest.raises(EOFError):
                GrammarHandler(vocabulary).do(theirs, WorkerLimits())

        with theirs, ours:
            pid = fork(work, [ours.fileno()])
            ours.send_bytes(pickle.dumps(("start: /[a-z]+/\n", False)))
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    return status


def test_it_ends_when_nobody_asks_any_more(status):
    assert status() == 0


def test_the_kernel_ends_it_if_compiling_takes_too_long(status, monkeypatch):
    monkeypatch.setattr(grammar_worker, "_COMPILE_SECONDS", 0.01)
    monkeypatch.setattr(grammar_worker, "_compile", lambda *_, **__: sum(itertools.count()))
    assert status() == -signal.SIGPROF
