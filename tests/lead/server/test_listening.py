import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from lead.server import listening
from lead.server.listening import Predecessor, activated_socket, hand_over
from shared.errors import ConfigError
from shared.model_files.builtin import builtin_draft


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def path(tmp_path):
    """The path at which the owner of `listener` waits."""
    return tmp_path / "s"


@contextlib.asynccontextmanager
async def owning(path, listener, stop_accepting=lambda: None):
    owner = asyncio.ensure_future(hand_over(path, listener, stop_accepting))
    while not path.exists():  # noqa: ASYNC110 - a file has no event
        await asyncio.sleep(0)
    yield owner
    owner.cancel()
    await asyncio.gather(owner, return_exceptions=True)


async def test_the_successor_accepts_connections_that_came_before_it_was_ready(path, listener):
    async with owning(path, listener) as owner:
        successor = await asyncio.to_thread(Predecessor, path)
        with socket.create_connection(listener.getsockname()) as client, successor.listener:
            await successor.replace()
            await owner
            listener.close()
            accepted, address = successor.listener.accept()
            accepted.close()
            assert address == client.getsockname()


async def test_the_children_of_a_successor_do_not_get_the_socket(path, listener):
    async with owning(path, listener):
        successor = await asyncio.to_thread(Predecessor, path)
        with successor.listener, successor._old:
            assert not successor.listener.get_inheritable()


async def test_the_owner_stops_accepting_before_the_successor_goes_on(path, listener):
    stopped = []
    async with owning(path, listener, lambda: stopped.append(path.exists())):
        successor = await asyncio.to_thread(Predecessor, path)
        with successor.listener:
            assert stopped == []
            await successor.replace()
    assert stopped == [True]
    assert not path.exists()


async def test_an_successor_that_dies_changes_nothing(path, listener, caplog):
    async with owning(path, listener) as owner:
        dead = await asyncio.to_thread(Predecessor, path)
        dead.listener.close()
        dead._old.close()
        successor = await asyncio.to_thread(Predecessor, path)
        with successor.listener:
            await successor.replace()
        await owner
    assert "This lead continues" in caplog.text


@pytest.mark.both_loops
async def test_a_successor_is_let_in_when_there_is_a_descriptor_for_it(
    path, listener, all_in_use, monkeypatch
):
    monkeypatch.setattr(listening, "_PAUSE_SECONDS", 0.001)
    with socket.socket(socket.AF_UNIX) as successor:
        async with owning(path, listener):
            opened = all_in_use()
            successor.connect(str(path))
            for _ in range(10):
                await asyncio.sleep(0)
            for _ in range(5):
                os.close(opened.pop())
            _, descriptors, _, _ = await asyncio.to_thread(socket.recv_fds, successor, 1, 1)
            socket.close(descriptors[0])


async def test_without_an_owner_there_is_nothing_to_take(path):
    with pytest.raises(ConfigError, match="--takeover: no lead of this user runs"):
        Predecessor(path)


async def test_a_second_successor_learns_that_there_is_one(path, listener, monkeypatch):
    monkeypatch.setattr(listening, "_TAKE_SECONDS", 0.05)
    async with owning(path, listener):
        first = await asyncio.to_thread(Predecessor, path)
        with first.listener, pytest.raises(ConfigError, match="already taking over"):
            await asyncio.to_thread(Predecessor, path)
        first._old.close()


async def test_at_its_end_an_owner_leaves_nothing_behind(path, listener):
    async with owning(path, listener):
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()


async def test_what_a_killed_owner_left_is_replaced(path, listener):
    path.touch()
    owner = asyncio.ensure_future(hand_over(path, listener, lambda: None))
    while not path.is_socket():  # noqa: ASYNC110 - a file has no event
        await asyncio.sleep(0)
    owner.cancel()
    await asyncio.gather(owner, return_exceptions=True)


AS_SYSTEMD = """
import os, sys
descriptor, *command = sys.argv[1:]
os.dup2(int(descriptor), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(command[0], command)
"""


def with_socket(descriptor, *arguments):
    """The command by which Python gets this descriptor as a service gets it from systemd."""
    return [sys.executable, "-c", AS_SYSTEMD, str(descriptor), sys.executable, *arguments]


def test_a_process_that_systemd_did_not_start_has_none():
    assert activated_socket({}, 7) is None
    assert activated_socket({"LISTEN_PID": "8", "LISTEN_FDS": "1"}, 7) is None


@pytest.mark.parametrize("n", ["0", "2", "x"])
def test_it_has_to_be_one_socket(n):
    environment = {"LISTEN_PID": "7", "LISTEN_FDS": n, "HOME": "/"}
    with pytest.raises(ConfigError, match=f"systemd gave {n} sockets"):
        activated_socket(environment, 7)
    assert environment == {"HOME": "/"}


ASK = """
import os, socket
from lead.server.listening import activated_socket
from shared.errors import ConfigError
try:
    listener = activated_socket(os.environ, os.getpid())
    print(listener.getsockname()[1], os.get_inheritable(3), "LISTEN_FDS" in os.environ)
except ConfigError as error:
    print(error)
"""


def printed_with(descriptor):
    command = with_socket(descriptor, "-c", ASK)
    done = subprocess.run(command, pass_fds=[descriptor], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def test_the_socket_is_taken_and_children_do_not_get_it():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert printed_with(listener.fileno()) == f"{port} False False"


def test_what_does_not_listen_is_refused():
    with socket.socket() as silent, Path(os.devnull).open("rb") as file:
        assert "does not listen" in printed_with(silent.fileno())
        assert "is not a socket" in printed_with(file.fileno())


LEAD = (
    *("-m", "lead", "--model", str(builtin_draft())),
    *("--threads", "1", "--ctx-size", "512", "--print", "none", "--no-calibrate"),
)


@pytest.mark.real
def test_who_connects_while_no_lead_runs_gets_an_answer_from_the_next_one():
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/completions"
        command = with_socket(listener.fileno(), *LEAD)
        for _ in range(2):
            body = {"prompt": "Once upon", "max_tokens": 2}
            answer = pool.submit(httpx.post, url, json=body, timeout=100, trust_env=False)
            with subprocess.Popen(command, pass_fds=[listener.fileno()], stderr=subprocess.DEVNULL) as lead:
                assert answer.result().status_code == 200
                lead.terminate()
