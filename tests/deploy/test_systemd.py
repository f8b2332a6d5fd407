import ctypes.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.parts.processes import start_back, start_lead
from lead.server.server import _END_SECONDS as END_SECONDS
from shared.model_files.builtin import builtin_draft, builtin_target
from tests.real.client import ask_until_accepted, chat, post
from tests.real.processes import BACK, LEAD, READY, engine_of
from tests.shared.os_service.machine import Machine

SMG = Path(__file__).parents[2] / "deploy/fleet/llama-duo-smg.service"
SERVICES = ["lead", "back"]


@pytest.fixture(scope="module")
def units(tmp_path_factory):
    """The system's units as `service install` writes them, and the router's unit."""
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine(tmp_path_factory.mktemp("machine"), patch)
        machine.run("lead", "install", "--system", "--socket", "--drain-seconds", "100")
        machine.run("back", "install", "--system")
    return {path.name.removeprefix("llama-duo-"): path for path in (*machine.units.iterdir(), SMG)}


@pytest.fixture(scope="module")
def user_units(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine(tmp_path_factory.mktemp("machine"), patch)
        for program in SERVICES:
            machine.run(program, "install")
    return sorted(machine.units.iterdir())


def lines_of(path):
    """All (key, value) pairs of a unit."""
    lines = path.read_text().splitlines()
    return [tuple(line.split("=", 1)) for line in lines if "=" in line and not line.startswith("#")]


@pytest.fixture
def systemd_analyze():
    if (found := shutil.which("systemd-analyze")) is None:
        pytest.skip("no systemd-analyze")
    return found


def test_answers_may_finish_before_the_lead_is_killed(units):
    assert float(dict(lines_of(units["lead.service"]))["TimeoutStopSec"]) > 100 + END_SECONDS


def verified(command, path, folder):
    """The exit status and the complaints of systemd's check of a unit."""
    program = shlex.split(dict(lines_of(path)).get("ExecStart", "true"))[0]
    # The router is not installed here, and that would be a complaint, too.
    (folder / path.name).write_text(path.read_text().replace(program, shutil.which("true")))
    result = subprocess.run([*command, str(folder / path.name)], check=False, capture_output=True, text=True)
    return result.returncode, result.stderr


def test_systemd_knows_every_line(systemd_analyze, units, tmp_path):
    for path in sorted(units.values()):  # the socket after its service, which it looks for
        assert verified([systemd_analyze, "verify"], path, tmp_path) == (0, ""), path.name


def test_a_user_s_systemd_knows_every_line(systemd_analyze, user_units, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for path in user_units:
        assert verified([systemd_analyze, "verify", "--user"], path, tmp_path) == (0, ""), path.name


def test_what_a_person_has_to_change_is_not_tried_again(units, user_units):
    paths = [*user_units, *(units[f"{name}.service"] for name in SERVICES)]
    assert {dict(lines_of(path))["RestartPreventExitStatus"] for path in paths} == {"1 2"}


def test_caches_and_data_lie_where_the_service_may_write(units):
    for name in SERVICES:
        lines = lines_of(units[f"{name}.service"])
        assert ("Environment", f"XDG_CACHE_HOME=%C/{dict(lines)['CacheDirectory']}") in lines
        assert ("Environment", f"XDG_DATA_HOME=%S/{dict(lines)['StateDirectory']}") in lines


# Rights

MAX_EXPOSED = 2.0
"""The highest exposure by `systemd-analyze security`, whose scale ends at 10. The network is half of it, and
GPUs are most of the rest.
"""
FILTER = Path(__file__).with_name("system_call_filter.py")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def test_systemd_finds_little_that_a_service_could_do_without(systemd_analyze, units):
    command = [systemd_analyze, "security", "--offline=true", f"--threshold={MAX_EXPOSED * 10:.0f}"]
    for path in units.values():
        if path.suffix == ".socket":
            continue
        result = subprocess.run([*command, path], check=False, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout


def test_gpus_can_be_reached(units):
    """`ProtectClock=` allows a device, which forbids all devices that are not allowed explicitly."""
    lines = lines_of(units["lead.service"])
    assert ("ProtectClock", "yes") in lines
    assert {"char-nvidia* rw", "char-drm rw", "char-kfd rw"} <= {v for k, v in lines if k == "DeviceAllow"}
    assert "PrivateDevices" not in dict(lines)


def test_an_engine_that_runs_out_of_memory_does_not_stop_the_lead(units):
    assert ("OOMPolicy", "continue") in lines_of(units["lead.service"])


def filtered(units, name):
    """The command of a program under the system call filter of its unit."""
    return [sys.executable, str(FILTER), str(units[f"{name}.service"]), sys.executable, "-m", name]


def is_filtered(pid):
    return "Seccomp:\t2" in Path(f"/proc/{pid}/status").read_text()


@pytest.mark.real
@pytest.mark.usefixtures("systemd_analyze")
@pytest.mark.skipif(ctypes.util.find_library("seccomp") is None, reason="no libseccomp")
def test_lead_engine_and_back_make_no_system_call_that_is_forbidden(units):
    lead, url = start_lead("--model", str(builtin_target()), *LEAD, command=filtered(units, "lead"))
    with lead:
        assert is_filtered(lead.process.pid)
        assert is_filtered(engine_of(lead))
        with start_back(url, "--model", str(builtin_draft()), *BACK, command=filtered(units, "back")) as back:
            assert is_filtered(back.process.pid)
            assert ask_until_accepted(url).done
            constrained = chat(response_format={"type": "json_schema", "json_schema": {"schema": SCHEMA}})
            assert post(url, constrained).status_code == 200
            since = lead.n_lines()
            os.kill(engine_of(lead), signal.SIGKILL)
            lead.wait_for(READY, since=since)
            assert ask_until_accepted(url).done
        assert "not permitted" not in back.log
    assert "not permitted" not in lead.log
