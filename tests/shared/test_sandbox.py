"""Real processes: what they may read and take, and how their ends are noticed."""

import contextlib
import os
import resource
import select
import signal
import socket
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from shared.sandbox import KILL, MEGABYTE, NO_GPU, STATUS, Sandbox, without_secrets
from tests.shared.toy_program import OTHER, PLAIN, ToyProgram, toy

SECRETS = [
    *("LEAD_API_KEY", "LEAD_ADMIN_KEY", "LEAD_BACK_KEY", "BACK_KEY"),
    *("HF_TOKEN", "LLAMA_API_KEY", "https_proxy"),
]
linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc, and limits of memory")


class Client:
    """The client of one task."""

    def __init__(self, sandbox, kind=PLAIN):
        task = sandbox.open(kind)
        self.connection = Connection(task.connection.detach())
        self.supervision = task.supervision

    def __del__(self):
        self.connection.close()
        self.supervision.close()

    def ask(self, question):
        self.connection.send(question)
        return self.connection.recv()

    @property
    def pid(self):
        return self.ask("describe")[0]

    def status(self):
        """The exit status of the worker; None if the fork server reports nothing more."""
        data = self.supervision.recv(1 + STATUS.size)[1:] or self.supervision.recv(STATUS.size)
        return STATUS.unpack(data)[0] if data else None


@pytest.fixture(scope="module")
def sandbox():
    with toy() as sandbox:
        yield sandbox


@pytest.fixture
def own():
    """A sandbox for one test."""
    with toy() as sandbox:
        yield sandbox


def children(pid):
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for_an_end(processes):
    descriptors = []
    try:
        with contextlib.suppress(ProcessLookupError):  # one ended
            descriptors.extend(os.pidfd_open(pid) for pid in processes)
            select.select(descriptors, [], [])
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


# Guards


def test_a_worker_knows_no_keys_has_no_gpu_one_thread_and_leaves_no_core_file(monkeypatch):
    for name in SECRETS:
        monkeypatch.setenv(name, "secret")
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))  # as far as the system lets this process
    with toy() as sandbox:
        _, environment, core, _ = Client(sandbox).ask("describe")
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    assert "secret" not in environment.values()
    assert environment.items() >= NO_GPU.items()
    assert environment["OPENBLAS_NUM_THREADS"] == environment["GGML_NO_BACKTRACE"] == "1"
    assert core == 0


@linux
def test_who_is_short_of_descriptors_for_a_moment_hands_that_down_to_nobody():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with toy() as sandbox:
        highest = max(int(each.name) for each in Path("/dev/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 40, hard))
        try:
            sandbox.start()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert resource.prlimit(Client(sandbox).pid, resource.RLIMIT_NOFILE) == (min(1 << 14, hard), hard)


@linux
def test_a_workers_memory_is_limited(sandbox):
    client = Client(sandbox)
    assert 0 < client.ask("describe")[3] < 4 << 30
    with pytest.raises(EOFError):
        client.ask(("allocate", 2048 * MEGABYTE))


def test_what_is_no_secret_is_left_to_child_processes():
    expected = {"PATH": "/bin", "HF_HOME": "h"}
    assert without_secrets({"PATH": "/bin", "HF_HOME": "h", "HF_TOKEN": "t"}) == expected


# Ends of workers


@pytest.mark.parametrize(
    ("question", "status"),
    [
        ("compute", -signal.SIGPROF),
        (("signal", signal.SIGSEGV), -signal.SIGSEGV),
        (("signal", signal.SIGKILL), -signal.SIGKILL),
    ],
)
def test_a_worker_that_ends_in_its_task_ends_alone_and_its_client_hears_how(sandbox, question, status):
    other, client = Client(sandbox), Client(sandbox)
    with pytest.raises(EOFError):
        client.ask(question)
    assert client.status() == status
    assert other.pid


def test_a_worker_that_hangs_is_killed_when_its_client_says_so(sandbox):
    client = Client(sandbox)
    client.connection.send("sleep")
    client.supervision.send(KILL)
    with pytest.raises((EOFError, ConnectionResetError)):
        client.connection.recv()
    assert client.status() == -signal.SIGKILL


def test_a_task_that_is_done_ends_without_a_status(sandbox):
    client = Client(sandbox)
    client.connection.send("end")
    assert client.status() is None


@linux
def test_a_worker_that_has_grown_does_its_task_and_no_other(own):
    client = Client(own)
    pid = client.pid
    assert client.ask(("allocate", 64 * MEGABYTE)) == 64 * MEGABYTE
    client.connection.send("end")
    wait_for_an_end([pid])
    assert Client(own).pid != pid


# The fork server


def test_it_starts_with_the_first_task(own):
    assert own.pid is None
    assert Client(own).pid
    assert own.pid


def test_one_that_has_died_is_started_again_while_tasks_go_on(own):
    before = Client(own)
    pid = before.pid
    os.kill(own.pid, signal.SIGKILL)
    own._process.wait()
    assert before.pid == pid
    assert Client(own).pid != pid
    before.connection.send(("signal", signal.SIGKILL))
    assert before.status() is None


def test_a_task_that_is_lost_with_it_never_begins():
    with toy(seconds=60) as sandbox:
        client = Client(sandbox)
        sandbox.kill()
        assert client.supervision.recv(1) == b""


def test_one_that_cannot_load_ends_without_a_word(capfd):
    with toy(fails=True) as sandbox:
        assert Client(sandbox).supervision.recv(1) == b""
    assert not capfd.readouterr().err


def test_signals_for_the_whole_group_do_not_end_it(own):
    assert Client(own).pid
    pid = own.pid
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
    assert Client(own).pid
    assert own.pid == pid


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_nothing_is_left_after_the_end(seconds, capfd):
    sandbox = toy(seconds=seconds).thing
    client = Client(sandbox)
    if not seconds:
        pid = client.pid
        os.kill(pid, signal.SIGSTOP)
    process = sandbox._process
    sandbox.close()
    assert process.returncode == 0
    assert not capfd.readouterr().err
    if not seconds:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@linux
def test_workers_do_one_task_after_the_other_and_few_are_kept(own):
    clients = [Client(own) for _ in range(8)]
    assert len({client.pid for client in clients}) == 8
    for client in clients:
        client.connection.send("end")
    while len(left := children(own.pid)) > 2:
        wait_for_an_end(left)
    used = set()
    for _ in range(10):
        client = Client(own)
        used.add(client.pid)
        client.connection.send("end")
        client.status()
    assert len(used) < 10


@linux
def test_a_spare_worker_that_is_killed_is_replaced(own):
    assert Client(own).pid
    while spare := children(own.pid):
        for pid in spare:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for_an_end(spare)
    assert Client(own).pid


# Kinds of tasks, and several clients


def test_what_a_kind_needs_is_prepared_before_its_first_task_and_for_workers_forked_later(own):
    before = Client(own)
    assert Client(own, OTHER).ask("what is prepared") == [PLAIN, OTHER]
    assert before.ask("what is prepared") == [PLAIN]
    assert Client(own).ask("what is prepared") == [PLAIN, OTHER]


@linux
def test_another_client_uses_the_same_fork_server_until_that_ends(own, caplog):
    control = socket.socket(fileno=os.dup(own.share()))
    with contextlib.closing(Sandbox(ToyProgram(), control)) as other:
        assert Client(other).pid in children(own.pid)
        assert other.pid is None
        os.kill(own.pid, signal.SIGKILL)
        own._process.wait()
        assert Client(other).pid in children(other.pid)
    assert "ended" in caplog.text


def test_the_fork_server_ends_with_its_last_client(own):
    control = socket.socket(fileno=os.dup(own.share()))
    process = own._process
    own._control.close()
    with contextlib.closing(Sandbox(ToyProgram(), control)) as other:
        assert Client(other).pid
    assert process.wait() == 0


def test_one_that_has_died_is_started_again_for_another_client(own):
    own.share()
    os.kill(own.pid, signal.SIGKILL)
    own._process.wait()
    with contextlib.closing(Sandbox(ToyProgram(), socket.socket(fileno=os.dup(own.share())))) as other:
        assert Client(other).pid
        assert other.pid is None
