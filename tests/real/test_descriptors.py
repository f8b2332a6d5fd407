"""Descriptors: few are enough despite idle or hostile connections, and children get only their own."""

import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections import Counter
from pathlib import Path

import httpx
import psutil
import pytest

from lab.parts.processes import Program, start_lead
from shared.model_files.builtin import builtin_draft
from tests.lead.http.middleware.test_timeouts import UNREADABLE
from tests.real.client import TIMEOUT_S, ask, get, stream
from tests.real.processes import LEAD, READY, back_of, engine_of, tokenizer_of

pytestmark = pytest.mark.real

LIMIT = 128
FEW_FILES = ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", sys.executable, "-m"]
IDLE = [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"]
"""The bytes that an idle connection sends before it falls silent."""


@contextlib.contextmanager
def limited(target):
    lead, url = start_lead("--model", str(target), *LEAD, command=[*FEW_FILES, "lead"])
    with lead:
        yield lead, url


@pytest.fixture(scope="module")
def few_files(target):
    """(lead, url) of a lead with a low limit of open files."""
    with limited(target) as served:
        yield served


@contextlib.contextmanager
def crowd(url, sent=IDLE):
    """While this context lasts, there are more hostile connections than the lead's limit of open files."""
    address = (httpx.URL(url).host, httpx.URL(url).port)
    with contextlib.ExitStack() as stack:
        for number in range(2 * LIMIT):
            client = stack.enter_context(socket.create_connection(address))
            client.sendall(sent[number % len(sent)])
        yield


@pytest.mark.parametrize(
    "sent", [IDLE, [*UNREADABLE.values()]], ids=["idle connections", "unreadable handshakes"]
)
def test_a_crowd_keeps_nobody_out(few_files, sent):
    _, url = few_files
    with crowd(url, sent):
        assert get(url, "/health")
        assert ask(url).done


def test_an_engine_and_a_tokenizer_that_die_in_a_crowd_are_started_again(few_files):
    lead, url = few_files
    since = lead.n_lines()
    with crowd(url):
        os.kill(engine_of(lead), signal.SIGKILL)
        os.kill(tokenizer_of(lead), signal.SIGKILL)
        with crowd(url):
            lead.wait_for(READY, since=since)
            assert get(url, "/health")
            assert ask(url, max_tokens=5).done


def test_a_back_stays_in_a_crowd(few_files):
    lead, url = few_files
    with back_of(lead, url, "helper"), crowd(url):
        assert ask(url).done
        assert "back helper left" not in lead.log


def test_a_crowd_disturbs_neither_the_end_of_a_stream_nor_that_of_the_lead(target):
    with limited(target) as (lead, url), stream(url) as answer:
        answer.until(lambda reply: reply.text)
        with crowd(url, [*IDLE, *UNREADABLE.values()]):
            lead.signal(signal.SIGTERM)
            assert answer.rest().done
            assert lead.process.wait(TIMEOUT_S) == 0


STRAY = "/dev/zero"
WITH_STRAY = ["sh", "-c", f'exec "$@" 9<{STRAY}', "sh", sys.executable, "-m", "lead"]
"""The command of a lead whose parent has left a descriptor open."""


def of_all(program, what):
    """Count the findings of `what` in all processes of a program."""
    found = Counter()
    front = psutil.Process(program.process.pid)
    for each in (front, *front.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
            found.update(what(each))
    return found


def listening(process):
    return [each.laddr.port for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]


def opened(process):
    return [STRAY for each in Path(f"/proc/{process.pid}/fd").iterdir() if each.resolve() == Path(STRAY)]


def hands_nothing_down(program):
    """Look repeatedly: a process that is starting has all descriptors for a moment."""
    return any(
        of_all(program, opened) == {STRAY: 1} and set(of_all(program, listening).values()) == {1}
        for _ in range(50)
    )


def test_the_children_of_a_lead_have_neither_its_port_nor_what_its_parent_left_open(monkeypatch):
    model = ("--model", str(builtin_draft()), "--back", "builtin", *LEAD)
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        before, url = start_lead(*model, command=WITH_STRAY)
        with before:
            assert hands_nothing_down(before)
            port = str(httpx.URL(url).port)
            after = Program("lead", *model, "--port", port, "--takeover", command=WITH_STRAY)
            with after:
                after.wait_for(READY)
                assert before.process.wait(TIMEOUT_S) == 0
                assert hands_nothing_down(after)


def test_the_engines_of_models_have_not_the_ports_of_their_fronts(tmp_path):
    shutil.copy(builtin_draft(), tmp_path / "small.gguf")
    options = ("--port", "0", "--models-dir", str(tmp_path), "--threads", "1", "--ctx-size", "512")
    with Program("lead", *options, "--no-calibrate", command=WITH_STRAY) as router:
        url = router.wait_for(r"listening on (http://\S+),")[1]
        body = {"model": "small", "prompt": "Hi", "max_tokens": 1}
        assert httpx.post(f"{url}/v1/completions", json=body, timeout=TIMEOUT_S).status_code == 200
        assert hands_nothing_down(router)
