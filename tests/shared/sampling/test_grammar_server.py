"""The process that follows grammars: it ends with the one that it serves, and not before."""

import signal
import socket
import subprocess
import sys

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


def test_signals_for_the_whole_group_do_not_end_it():
    server = GrammarServer(builtin_target(), Patience())
    assert len(server.follow(ANYTHING).allowed()) > 0
    for number in (signal.SIGINT, signal.SIGTERM):
        server._process.send_signal(number)
    assert len(server.follow(ANYTHING).allowed()) > 0
    assert server._process.poll() is None
    server.close()
