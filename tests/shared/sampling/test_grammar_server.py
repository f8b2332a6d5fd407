"""The process that follows grammars: it ends with the one that it serves, and not before."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from shared.models.builtin import builtin_target
from shared.sampling.remote_grammar import GrammarServer, Patience

ANYTHING = "start: /[a-z]+/\n"


def test_it_ends_when_the_other_end_is_closed():
    ours, theirs = socket.socketpair()
    number = theirs.fileno()
    command = [sys.executable, "-m", "shared.sampling.grammar_server", str(number), builtin_target()]
    with theirs:
        process = subprocess.Popen(command, pass_fds=[number])
    ours.close()
    assert process.wait(60) == 0


def test_it_starts_with_the_first_grammar():
    server = GrammarServer(builtin_target(), Patience())
    assert server._process is None
    assert len(server.follow(ANYTHING).allowed()) > 0
    assert server._process is not None
    server.close()


def test_signals_for_the_whole_group_do_not_end_it():
    server = GrammarServer(builtin_target(), Patience())
    assert len(server.follow(ANYTHING).allowed()) > 0
    for number in (signal.SIGINT, signal.SIGTERM):
        server._process.send_signal(number)
    assert len(server.follow(ANYTHING).allowed()) > 0
    assert server._process.poll() is None
    server.close()


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_spare_process_that_is_killed_is_replaced():
    server = GrammarServer(builtin_target(), Patience())
    server.follow(ANYTHING).allowed()
    while children := _children(server._process.pid):
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _wait_for_an_end(children)
    assert len(server.follow(ANYTHING).allowed()) > 0
    server.close()


def test_many_grammars_at_once_are_each_followed():
    server = GrammarServer(builtin_target(), Patience())
    grammars = [server.follow(f'start: "{letter}"\n') for letter in "abcdefgh"]
    pieces = [len(grammar.allowed()) for grammar in grammars]
    assert min(pieces) > 0
    server.close()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_process_follows_several_grammars_one_after_the_other():
    server = GrammarServer(builtin_target(), Patience())
    processes: set[int] = set()
    for _ in range(10):
        assert len(server.follow(ANYTHING).allowed()) > 0
        processes.update(_children(server._process.pid))
    assert len(processes) < 10
    server.close()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_of_many_processes_few_are_kept():
    server = GrammarServer(builtin_target(), Patience())
    grammars = [server.follow(ANYTHING) for _ in range(8)]
    assert all(len(grammar.allowed()) > 0 for grammar in grammars)
    assert len(_children(server._process.pid)) >= 8
    del grammars[:]
    while len(children := _children(server._process.pid)) > 2:
        _wait_for_an_end(children)
    assert len(server.follow(ANYTHING).allowed()) > 0
    server.close()


def _wait_for_an_end(processes: list[int]) -> None:
    descriptors = []
    try:
        with contextlib.suppress(ProcessLookupError):  # one has ended
            descriptors.extend(os.pidfd_open(pid) for pid in processes)
            select.select(descriptors, [], [])
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
