"""The systemd units: options that exist, and time for answers to finish."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from back.settings import BackSettings
from lead.engine.client import _STOP_SECONDS as ENGINE_SECONDS
from lead.server.draining import CLOSE_SECONDS
from lead.server.local_back import _STOP_SECONDS as BACK_SECONDS
from lead.settings.lead_settings import LeadSettings

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
    assert grace > settings.drain_seconds + BACK_SECONDS + CLOSE_SECONDS + ENGINE_SECONDS


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
