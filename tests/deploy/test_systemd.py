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
from bench.processes import Program
from lead.server.server import _END_SECONDS as END_SECONDS
from lead.settings.lead_settings import LeadSettings
from shared.models.builtin import builtin_draft, builtin_target
from tests.real.client import ask_until_accepted, chat, post
from tests.real.processes import BACK, LEAD, engine_of

UNITS = Path(__file__).parents[2] / "deploy/systemd"
SETTINGS = {"lead": LeadSettings, "back": BackSettings}


def unit(name):
    """All (key, value) of a unit."""
    lines = (UNITS / f"llama-duo-{name}.service").read_text().splitlines()
    return [tuple(line.split("=", 1)) for line in lines if "=" in line and not line.startswith("#")]


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
    readme = (UNITS / "README.md").read_text()
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


@pytest.mark.parametrize("name", SETTINGS)
def test_systemd_knows_every_line(name, tmp_path):
    if (systemd := shutil.which("systemd-analyze")) is None:
        pytest.skip("no systemd-analyze")
    text = (UNITS / f"llama-duo-{name}.service").read_text()
    path = tmp_path / f"llama-duo-{name}.service"
    # The program is not installed here, and that would be a complaint, too.
    path.write_text(text.replace(f"/opt/llama-duo/bin/{name}", shutil.which("true")))
    result = subprocess.run([systemd, "verify", str(path)], check=False, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("name", SETTINGS)
def test_what_a_person_has_to_change_is_not_tried_again(name):
    assert ("RestartPreventExitStatus", "1 2") in unit(name)


@pytest.mark.parametrize("name", SETTINGS)
def test_caches_lie_where_the_service_may_write(name):
    assert ("Environment", f"XDG_CACHE_HOME=%C/{dict(unit(name))['CacheDirectory']}") in unit(name)


# Rights

MOST_EXPOSED = 2.0
"""Of 10, by `systemd-analyze security`. The network is half of it; GPUs are most of the rest."""
FILTER = Path(__file__).with_name("system_call_filter.py")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize("name", SETTINGS)
def test_systemd_finds_little_that_a_service_could_do_without(name):
    if (systemd := shutil.which("systemd-analyze")) is None:
        pytest.skip("no systemd-analyze")
    command = [systemd, "security", "--offline=true", f"--threshold={MOST_EXPOSED * 10:.0f}"]
    result = subprocess.run(
        [*command, UNITS / f"llama-duo-{name}.service"], check=False, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout


def test_both_services_have_the_same_rights():
    lead, back = (unit(name) for name in SETTINGS)
    assert lead[lead.index(("DynamicUser", "yes")) :] == back[back.index(("DynamicUser", "yes")) :]


@pytest.mark.parametrize("name", SETTINGS)
def test_gpus_can_be_reached(name):
    """`ProtectClock=` allows a device, and then all that are not allowed are forbidden."""
    lines = unit(name)
    assert ("ProtectClock", "yes") in lines
    assert {"char-nvidia* rw", "char-drm rw", "char-kfd rw"} <= {v for k, v in lines if k == "DeviceAllow"}
    assert "PrivateDevices" not in dict(lines)


def test_an_engine_that_runs_out_of_memory_does_not_stop_the_lead():
    assert ("OOMPolicy", "continue") in unit("lead")


@pytest.fixture
def filtered():
    """The command of a program under its unit's filter of system calls."""
    if shutil.which("systemd-analyze") is None or ctypes.util.find_library("seccomp") is None:
        pytest.skip("no systemd-analyze, or no libseccomp")

    def command(name):
        path = UNITS / f"llama-duo-{name}.service"
        return [sys.executable, str(FILTER), str(path), sys.executable, "-m", name]

    return command


def is_filtered(pid):
    return "Seccomp:\t2" in Path(f"/proc/{pid}/status").read_text()


@pytest.mark.real
def test_lead_engine_and_back_make_no_system_call_that_is_forbidden(filtered):
    model = ("--model", str(builtin_target()))
    draft = ("--model", str(builtin_draft()))
    with Program("lead", "--port", "0", *model, *LEAD, command=filtered("lead")) as lead:
        url = lead.wait_for(r"listening on (http://\S+),").group(1)
        lead.wait_for(r" ready: ")
        assert is_filtered(lead.process.pid)
        assert is_filtered(engine_of(lead))
        with Program("back", "--lead", url, *draft, *BACK, command=filtered("back")) as back:
            back.wait_for(r"drafting for ")
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
