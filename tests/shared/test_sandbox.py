"""What forked processes may know and take; the guards are looked at in real ones of both kinds."""

import os
import resource
import signal
import sys
from pathlib import Path

import pytest

from lead.settings.conversation import ConversationOptions
from lead.settings.limits import RequestLimits
from lead.tokenizer.fork_server import ForkServer
from lead.tokenizer.jobs import Setup, TokenizeText, encode
from shared import sandbox
from shared.models.builtin import builtin_target
from shared.sampling.remote_grammar import GrammarServer, Patience
from shared.sandbox import MEGABYTE, Limits, fork, without_secrets

SECRETS = [
    "LEAD_API_KEY",
    "LEAD_ADMIN_KEY",
    "LEAD_BACK_KEY",
    "BACK_KEY",
    "HF_TOKEN",
    "LLAMA_API_KEY",
    "https_proxy",
]
linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc, and limits of memory")


def status_of(work):
    """The status in which a forked process that does `work` ends."""
    return os.waitstatus_to_exitcode(os.waitpid(fork(work), 0)[1])


class Worker:
    """A forked process that has done some work, as the kernel shows it."""

    def __init__(self, pid):
        self._folder = Path(f"/proc/{pid}")
        entries = (self._folder / "environ").read_bytes().split(b"\0")
        self.environment = dict(entry.decode().split("=", 1) for entry in entries if entry)

    def limit(self, name):
        (line,) = (line for line in (self._folder / "limits").read_text().splitlines() if name in line)
        return line.removeprefix(name).split()[0]


def children(pid):
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def _core_files():
    """Allowed in this process, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


@pytest.fixture(params=["tokenizer", "grammar"])
async def worker(request, monkeypatch, _core_files):
    for name in SECRETS:
        monkeypatch.setenv(name, "secret")
    if request.param == "tokenizer":
        setup = Setup(builtin_target(), None, ConversationOptions(), RequestLimits())
        async with ForkServer(setup) as server:
            await server.load()
            process = await server.fork()
            await process.ask(
                encode(TokenizeText("fox", add_special=False, parse_special=False, with_pieces=False))
            )
            yield Worker(process.pid)
        return
    server = GrammarServer(builtin_target(), Patience())
    grammar = server.follow('start: "a"\n')
    assert len(grammar.allowed())
    yield Worker(children(server._process.pid)[0])
    server.close()


@linux
async def test_a_worker_knows_no_keys(worker):
    assert "secret" not in worker.environment.values()


@linux
async def test_a_worker_has_no_gpu(worker):
    assert worker.environment["CUDA_VISIBLE_DEVICES"] == worker.environment["HIP_VISIBLE_DEVICES"] == ""


@linux
async def test_a_worker_computes_with_one_thread(worker):
    assert worker.environment["OPENBLAS_NUM_THREADS"] == "1"


@linux
async def test_a_worker_leaves_no_core_file(worker):
    assert worker.limit("Max core file size") == "0"


@linux
async def test_a_workers_memory_is_limited(worker):
    assert 0 < int(worker.limit("Max data size")) < 4 << 30


def test_what_is_no_secret_is_left_to_child_processes():
    assert without_secrets({"PATH": "/bin", "HF_HOME": "h", "HF_TOKEN": "t"}) == {
        "PATH": "/bin",
        "HF_HOME": "h",
    }


def test_a_process_that_is_done_ends_well_and_one_that_fails_does_not():
    assert (status_of(lambda: None), status_of(lambda: 1 / 0)) == (0, 1)


def test_a_forked_process_does_not_have_what_is_unwanted():
    reading, writing = os.pipe()
    pid = fork(lambda: os.fstat(writing), [writing])
    os.close(writing)
    assert os.read(reading, 1) == b""
    os.close(reading)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


def test_the_system_ends_a_process_that_computes_for_too_long():
    def compute():
        with Limits().time(0.05):
            while True:
                pass

    assert status_of(compute) == -signal.SIGPROF


def test_a_limit_of_time_that_is_over_ends_nothing():
    def compute():
        with Limits().time(0.01):
            pass
        sum(range(1_000_000))

    assert status_of(compute) == 0


@linux
def test_memory_beyond_the_limit_cannot_be_allocated():
    def allocate():
        Limits().set_memory(10 * MEGABYTE)
        with pytest.raises(MemoryError):
            bytearray(1024 * MEGABYTE)

    assert status_of(allocate) == 0


@linux
def test_a_hard_limit_of_the_system_stays():
    def limit():
        resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
        Limits().set_memory(16 << 30)

    assert status_of(limit) == 0


def test_memory_that_was_given_back_counts_as_growth():
    limits = Limits()
    assert not limits.has_grown
    bytearray(b"x") * (sandbox._peak_memory() + 64 * MEGABYTE)
    assert limits.has_grown
