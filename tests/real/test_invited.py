"""Machines that join with a code of `lead invite`, with the real programs: as what, and over restarts."""

import contextlib
import re
import shutil
import socket
import subprocess
import sys

import pytest

from bench.processes import Program, free_port
from shared.models.builtin import builtin_draft
from tests.real.client import TIMEOUT_S
from tests.real.processes import BACK

pytestmark = pytest.mark.real

OPTIONS = ("--threads", "1", "--ctx-size", "512", "--no-calibrate")


@pytest.fixture(autouse=True)
def own_data(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture(params=["one model", "several models"])
def serving(request, tmp_path):
    """Starts leads, one after the other, at one port; each a context that gives (program, port)."""
    models = tmp_path / "models"
    models.mkdir()
    model = shutil.copy(builtin_draft(), models / "small.gguf")
    several = request.param == "several models"
    port = free_port()

    @contextlib.contextmanager
    def serve():
        models_options = ("--models-dir", str(models)) if several else ("--model", str(model))
        with Program("lead", "--port", str(port), *OPTIONS, *models_options) as program:
            program.wait_for("with 1 models" if several else " ready: ")
            yield program, port

    return serve


def run(*command, text=None):
    """(exit status, all that was said)"""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stdout


def code_of(port, *options):
    url = f"http://127.0.0.1:{port}"
    status, said = run("lead", "invite", "--open", "--address", "127.0.0.1", "--lead", url, *options)
    assert status == 0, said
    return re.search(r"--join (\S+)", said)[1]


def answered(*options):
    status, said = run("chat", "--model", "small", "--max-tokens", "4", *options, "Hi")
    return status == 0 or said


def test_a_lead_starts_again_with_those_who_have_joined(serving):
    with serving() as (_, port):
        assert answered("--join", code_of(port, "--chat")) is True
    for _ in range(2):
        with serving() as (program, _):
            program.wait_for("invited machines come in at")
            assert answered() is True


def test_a_lead_starts_although_another_program_has_the_port_for_members(serving):
    with serving() as (_, port):
        code_of(port)
    with socket.create_server(("0.0.0.0", port + 1)), serving() as (program, _):
        program.wait_for("invited machines cannot come in: cannot listen on 0.0.0.0")
        assert answered("--lead", f"http://127.0.0.1:{port}") is True


def test_a_code_is_good_for_what_it_was_made_for(serving):
    with serving() as (_, port):
        for_chat, for_back = code_of(port, "--chat"), code_of(port)
        assert "this code is for a back, not for chat" in answered("--join", for_back)
        status, said = run("back", "--model", str(builtin_draft()), "--join", for_chat)
        assert (status, "this code is for chat, not for a back" in said) == (1, True), said
        assert answered("--join", for_chat) is True
        with Program("back", "--model", str(builtin_draft()), "--join", for_back, *BACK) as back:
            back.wait_for("drafting for wss://127.0.0.1:")
