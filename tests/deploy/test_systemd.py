"""The systemd units: options that exist, time for answers to finish, and no more rights than are used."""

import ctypes.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from back.settings import BackSettings
from bench.processes import start_back, start_lead
from lead.server.server import _END_SECONDS as END_SECONDS
from lead.settings.lead_settings import LeadSettings
from shared.models.builtin import builtin_draft, builtin_target
from tests.real.client import ask_until_accepted, chat, post
from tests.real.processes import BACK, LEAD, engine_of

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = {
    "lead": DEPLOY / "systemd/llama-duo-lead.service",
    "back": DEPLOY / "systemd/llama-duo-back.service",
    "smg": DEPLOY / "fleet/llama-duo-smg.service",
}
SETTINGS = {"lead": LeadSettings, "back": BackSettings}


def unit(name):
    """All (key, value) of a unit."""
    lines = UNITS[name].read_text().splitlines()
    return [tuple(line.split("=", 1)) for line in lines if "=" in line and not line.startswith("#")]


@pytest.fixture
def systemd_analyze():
    if (found := shutil.which("systemd-analyze")) is None:
        pytest.skip("no systemd-analyze")
    return found


def settings_of(name, tmp_path, monkeypatch):
    """The settings with which the unit's program starts, with the README's file of settings."""
    keys = dict(part.split("=", 1) for k, v in unit(name) if k == "Environment" for part in shlex.split(v))
    assert {k for k in keys if k[:5] in {"LEAD_", "BACK_"}} <= {
        f"{name}_{field}".upper() for field in SETTINGS[name].options()
    }
    for variable, value in keys.items():
        monkeypatch.setitem(os.environ, variable, value)
    program, *arguments = shlex.split(dict(unit(name))["ExecStart"])
    assert program == f"/opt/llama-duo/bin/{name}"
    readme = (DEPLOY / "systemd/README.md").read_text()
    text = readme.partition(f"/etc/llama-duo/{name}.toml > /dev/null <<'END'\n")[2].partition("END\n")[0]
    assert text
    (tmp_path / "settings.toml").write_text(text)
    here = [str(tmp_path / "settings.toml") if each.endswith(".toml") else each for each in arguments]
    return SETTINGS[name].from_command_line(here)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_programs_start_with_what_unit_and_readme_set(name, tmp_path, monkeypatch):
    settings_of(name, tmp_path, monkeypatch)


def test_answers_may_finish_before_the_lead_is_killed(tmp_path, monkeypatch):
    settings = settings_of("lead", tmp_path, monkeypatch)
    grace = float(dict(unit("lead"))["TimeoutStopSec"])
    assert grace > settings.drain_seconds + END_SECONDS


def test_systemd_knows_every_line(systemd_analyze, tmp_path):
    for name, path in UNITS.items():
        # The program is not installed here, and that would be a complaint, too.
        program = shlex.split(dict(unit(name))["ExecStart"])[0]
        (tmp_path / path.name).write_text(path.read_text().replace(program, shutil.which("true")))
        command = [systemd_analyze, "verify", str(tmp_path / path.name)]
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        assert (result.returncode, result.stderr) == (0, ""), name


def test_what_a_person_has_to_change_is_not_tried_again():
    assert [dict(unit(name))["RestartPreventExitStatus"] for name in SETTINGS] == ["1 2", "1 2"]


def test_caches_lie_where_the_service_may_write():
    for name in SETTINGS:
        assert ("Environment", f"XDG_CACHE_HOME=%C/{dict(unit(name))['CacheDirectory']}") in unit(name)


# Rights

MOST_EXPOSED = 2.0
"""The exposure by `systemd-analyze security`, at most 10. The network is half, GPUs are most of the rest."""
FILTER = Path(__file__).with_name("system_call_filter.py")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def test_systemd_finds_little_that_a_service_could_do_without(systemd_analyze):
    command = [systemd_analyze, "security", "--offline=true", f"--threshold={MOST_EXPOSED * 10:.0f}"]
    for path in UNITS.values():
        result = subprocess.run([*command, path], check=False, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout


def test_both_services_have_the_same_rights():
    lead, back = (unit(name) for name in SETTINGS)
    assert lead[lead.index(("DynamicUser", "yes")) :] == back[back.index(("DynamicUser", "yes")) :]


def test_gpus_can_be_reached():
    """`ProtectClock=` allows a device, and then all that are not allowed are forbidden."""
    lines = unit("lead")
    assert ("ProtectClock", "yes") in lines
    assert {"char-nvidia* rw", "char-drm rw", "char-kfd rw"} <= {v for k, v in lines if k == "DeviceAllow"}
    assert "PrivateDevices" not in dict(lines)


def test_an_engine_that_runs_out_of_memory_does_not_stop_the_lead():
    assert ("OOMPolicy", "continue") in unit("lead")


def filtered(name):
    """The command of a program under its unit's filter of system calls."""
    return [sys.executable, str(FILTER), str(UNITS[name]), sys.executable, "-m", name]


def is_filtered(pid):
    return "Seccomp:\t2" in Path(f"/proc/{pid}/status").read_text()


@pytest.mark.real
@pytest.mark.usefixtures("systemd_analyze")
@pytest.mark.skipif(ctypes.util.find_library("seccomp") is None, reason="no libseccomp")
def test_lead_engine_and_back_make_no_system_call_that_is_forbidden():
    lead, url = start_lead("--model", str(builtin_target()), *LEAD, command=filtered("lead"))
    with lead:
        assert is_filtered(lead.process.pid)
        assert is_filtered(engine_of(lead))
        with start_back(url, "--model", str(builtin_draft()), *BACK, command=filtered("back")) as back:
            assert is_filtered(back.process.pid)
            assert ask_until_accepted(url).done
            constrained = chat(response_format={"type": "json_schema", "json_schema": {"schema": SCHEMA}})
            assert post(url, constrained).status_code == 200
            since = lead.n_lines()
            os.kill(engine_of(lead), signal.SIGKILL)
            lead.wait_for(r" ready: ", since=since)
            assert ask_until_accepted(url).done
        assert "not permitted" not in back.log
    assert "not permitted" not in lead.log
