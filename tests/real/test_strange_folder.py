"""Programs that are started in a folder with somebody's files execute none, nor do their processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.parts.processes import Program, start_back, start_lead
from shared import cpus
from shared.model_files.builtin import builtin_draft
from tests.python_runs import run_python
from tests.real.client import ask
from tests.real.processes import BACK, LEAD

pytestmark = pytest.mark.real

MODULES = [
    *("asyncio", "ctypes", "httpx", "jinja2", "json", "llama_cpp", "llguidance"),
    *("logging", "multiprocessing", "numpy", "pickle", "psutil", "pydantic", "queue"),
    *("rich", "socket", "tempfile", "uvloop", "websockets"),
]
"""Modules of the standard library and of others that Python does not import before a program begins."""
NOTE = """import os
with open({log!r}, "a") as log:
    log.write("{name}\\n")
raise ImportError("hostile")
"""
GRAMMAR = 'root ::= "a"+'
ANYWHERE = ":"
"""A value of PYTHONPATH: the working directory."""


class Folder:
    """A folder with modules and programs that record when they are executed."""

    def __init__(self, path):
        self.path = path
        self._log = path / "log"
        for name in MODULES:
            (path / f"{name}.py").write_text(NOTE.format(log=str(self._log), name=name))
        for name in ("uname", "python", "lead"):
            (path / name).write_text(f"#!/bin/sh\necho {name} >> {self._log}\nexit 1\n")
            (path / name).chmod(0o700)

    @property
    def executed(self):
        return self._log.read_text().split() if self._log.exists() else []

    def command(self, name, pythonpath=ANYWHERE):
        """The command that starts a program in this folder."""
        given = ["-u", "PYTHONPATH"] if pythonpath is None else [f"PYTHONPATH={pythonpath}"]
        script = Path(sys.executable).with_name(name)
        return ["env", "-C", str(self.path), *given, f"PATH=:{os.environ['PATH']}", str(script)]

    def run(self, name, *arguments, pythonpath=ANYWHERE):
        """Run a program to its end, which must be a success; return its output."""
        command = [*self.command(name, pythonpath), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def test_a_lead_with_all_its_processes_executes_nothing(folder, target):
    command = folder.command("lead")
    lead, url = start_lead("--model", str(target), *LEAD, "--back", "builtin", command=command)
    with lead:
        lead.wait_for(r"back local .*joined")
        assert set(ask(url, grammar=GRAMMAR, max_tokens=8).text) == {"a"}
    assert folder.executed == []


def test_a_back_and_a_chat_execute_nothing(folder, served):
    _, url = served
    options = ("--model", str(builtin_draft()), *BACK)
    with start_back(url, *options, command=folder.command("back")):
        assert set(ask(url, grammar=GRAMMAR, max_tokens=8).text) == {"a"}
        assert folder.run("chat", "--lead", url, "--max-tokens", "8", "Hi").strip()
    assert folder.executed == []


def test_a_router_and_its_models_execute_nothing(folder, tiny_model):
    model = tiny_model("llama")
    small = ("--threads", "1", "--ctx-size", "256", "--no-calibrate")
    options = ("--port", "0", "--models-dir", str(model.parent), *small)
    with Program("lead", *options, command=folder.command("lead")) as router:
        url = router.wait_for(r"listening on (http://\S+), with").group(1)
        assert ask(url, model=model.stem, max_tokens=2, grammar=GRAMMAR).done
    assert folder.executed == []


@pytest.fixture
def model(tiny_model):
    return ("--model", str(tiny_model("llama")), "--threads", "1", "--ctx-size", "256")


@pytest.mark.parametrize("pythonpath", [None, ".", "lib:."])
def test_generating_executes_nothing(folder, model, pythonpath):
    options = (*model, "--no-calibrate", "-n", "2", "-i", "Hi")
    assert folder.run("lead", "generate", *options, pythonpath=pythonpath)
    assert folder.executed == []


@pytest.mark.skipif(len(cpus.one_of_each_core()) < 2, reason="needs two cores")
def test_measuring_executes_nothing(folder, model):
    options = ("plan", *model, "--draft-model", model[1])
    with Program("lead", *options, command=folder.command("lead")) as plan:
        plan.wait_for("measuring with")  # the second process; the first one has done its work
    assert folder.executed == []


ACTOR = """
import os, subprocess, sys
sys.path.remove(os.getcwd())  # what has started the actor has done so
from shared.python_child import ChildProcess, child_command
print(ChildProcess(child_command("back", "--version"), stdout=subprocess.DEVNULL).wait())
"""


def test_a_child_of_an_actor_executes_nothing(folder):
    environment = os.environ | {"PYTHONPATH": ANYWHERE}
    done = run_python("-P", "-c", ACTOR, cwd=folder.path, env=environment)
    assert (done.stdout, done.stderr) == ("0\n", "")
    assert folder.executed == []


def test_an_absolute_folder_is_searched_by_a_lead_and_by_its_processes(folder, tmp_path, model):
    log = tmp_path / "seen"
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nwith open({str(log)!r}, 'a') as log: log.write(' '.join(sys.orig_argv) + '\\n')\n"
    )
    given = os.pathsep.join(["", str(tmp_path)])
    for name in MODULES:
        (tmp_path / f"{name}.py").unlink()
    lead, _ = start_lead(*model, "--no-calibrate", command=folder.command("lead", given))
    with lead:
        started = log.read_text()
    assert "shared.fork_server" in started
    assert "lead.engine" in started
    assert f"{Path(sys.executable).with_name('lead')} --port" in started
