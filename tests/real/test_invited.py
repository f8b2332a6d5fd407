"""Machines that join with a code of `lead invite`, with the real programs: their roles, and restarts."""

import contextlib
import re
import shutil
import socket

import pytest

from lab.parts.processes import Program, free_port
from shared.model_files.builtin import builtin_draft
from tests.python_runs import run_python
from tests.real.client import TIMEOUT_S
from tests.real.processes import BACK, READY

pytestmark = pytest.mark.real

OPTIONS = ("--threads", "1", "--ctx-size", "512", "--no-calibrate")


@pytest.fixture(scope="module")
def port():
    return free_port()


@pytest.fixture(scope="module", params=["one model", "several models"])
def serving(request, port, tmp_path_factory):
    """Starts leads one after the other at that port. Each is a context that gives the program."""
    folder = tmp_path_factory.mktemp("invited")
    models = folder / "models"
    models.mkdir()
    model = shutil.copy(builtin_draft(), models / "small.gguf")
    several = request.param == "several models"

    @contextlib.contextmanager
    def serve():
        models_options = ("--models-dir", str(models)) if several else ("--model", str(model))
        with Program("lead", "--port", str(port), *OPTIONS, *models_options) as program:
            program.wait_for("with 1 model: " if several else READY)
            yield program

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        yield serve


def run(*command, text=None):
    """(exit status, all output)."""
    done = run_python("-m", *command, input=text, timeout=TIMEOUT_S)
    return done.returncode, done.stdout + done.stderr


def code_of(port, *options):
    url = f"http://127.0.0.1:{port}"
    status, said = run("lead", "invite", "--open", "--address", "127.0.0.1", "--lead", url, *options)
    assert status == 0, said
    return re.search(r"--join (\S+)", said)[1]


def answered(*options):
    status, said = run("chat", "--model", "small", "--max-tokens", "4", *options, "Hi")
    return status == 0 or said


@pytest.fixture(scope="module")
def tried(serving, port):
    """The replies of a lead and of the programs to codes, by attempt. The lead has ended."""
    with serving():
        for_chat, for_back = code_of(port, "--chat"), code_of(port)
        said = {
            "a back's code in chat": run("chat", "--model", "small", "--join", for_back, "Hi")[1],
            "chat's code in a back": run("back", "--model", str(builtin_draft()), "--join", for_chat),
            "chat's code in chat": answered("--join", for_chat),
        }
        with Program("back", "--model", str(builtin_draft()), "--join", for_back, *BACK) as back:
            back.wait_for("drafting for wss://127.0.0.1:")
    return said


def test_a_code_is_good_for_what_it_was_made_for(tried):
    assert "this code is for a back" in tried["a back's code in chat"]
    status, said = tried["chat's code in a back"]
    assert (status, "this code is for chat" in said) == (1, True), said
    assert tried["chat's code in chat"] is True


@pytest.mark.usefixtures("tried")
def test_a_lead_starts_again_with_those_who_have_joined(serving):
    for _ in range(2):
        with serving() as program:
            program.wait_for("invited machines connect to")
            assert answered() is True


@pytest.mark.usefixtures("tried")
def test_a_lead_starts_although_another_program_has_the_port_for_members(serving, port):
    with socket.create_server(("0.0.0.0", port + 1)), serving() as program:
        program.wait_for("invited machines cannot connect: cannot listen on 0.0.0.0")
        assert answered("--lead", f"http://127.0.0.1:{port}") is True
