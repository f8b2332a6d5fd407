import plistlib
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lead.settings.lead_settings import LeadSettings
from shared.os_service import service_program
from shared.os_service.service_program import installed_services, remove_service

KEY = "abc123"


def lead_settings(machine):
    return LeadSettings.from_command_line(["--config", str(machine.settings / "llama-duo-lead.toml")])


@pytest.mark.parametrize("program", ["lead", "back"])
@pytest.mark.parametrize("scope", [[], ["--system"]])
def test_a_service_is_enabled_and_started_then_removed_without_a_trace(machine, program, scope, capsys):
    assert machine.run(program, "install", *scope) == 0
    unit = f"llama-duo-{program}.service"
    assert (machine.state["enabled"], machine.state["active"]) == ([unit], [unit])
    assert all(call.startswith("--user ") == (not scope) for call in machine.state["calls"])
    assert machine.run(program, "status", *scope) == 0
    assert machine.run(program, "remove", *scope) == 0
    cleaned = f"clean --what=state {unit}" in machine.state["calls"]
    assert cleaned == bool(scope)
    assert (machine.state["known"], machine.state["enabled"], machine.state["active"]) == ({}, [], [])
    assert machine.files() == set()
    assert not machine.settings.exists()
    assert "is removed" in capsys.readouterr().out


def test_options_variables_and_files_are_what_the_service_reads(machine, monkeypatch, tmp_path):
    (tmp_path / "more.toml").write_text('port = 7000\nalias = "a \\"b\\" $c %d"\ntop-k = 7\n')
    monkeypatch.setenv("LEAD_TOP_K", "8")
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "512")
    machine.run("lead", "install", "--config", tmp_path / "more.toml", "--port", "7001", "--mlock")
    for name in ("LEAD_TOP_K", "LLAMA_ARG_CTX_SIZE"):
        monkeypatch.delenv(name)
    found = lead_settings(machine)
    assert (found.port, found.alias, found.sampling.top_k) == (7001, 'a "b" $c %d', 8)
    assert (found.compute.ctx_size, found.compute.load_mode) == (512, "mmap+mlock")


def test_keys_are_in_a_file_that_only_its_owner_can_read(machine, monkeypatch):
    monkeypatch.setenv("LEAD_BACK_KEY", "fromvariable")
    machine.run("lead", "install", "--system", "--api-key", KEY)
    (unit,) = machine.units.iterdir()
    assert KEY not in unit.read_text()
    assert KEY not in str(machine.state)
    config = machine.settings / "llama-duo-lead.toml"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert KEY in config.read_text()
    assert "fromvariable" in config.read_text()


def test_a_relative_path_is_the_same_file_for_the_service(machine, monkeypatch, tmp_path):
    (tmp_path / "m.gguf").touch()
    monkeypatch.chdir(tmp_path)
    machine.run("lead", "install", "--model", "m.gguf")
    assert lead_settings(machine).source.model == tmp_path / "m.gguf"


def test_files_of_keys_are_credentials_of_a_system_service(machine, monkeypatch, tmp_path):
    (tmp_path / "my key").write_text(KEY)
    monkeypatch.chdir(tmp_path)
    machine.run("back", "install", "--system", "--key-file", "my key")
    unit = (machine.units / "llama-duo-back.service").read_text().splitlines()
    assert f"LoadCredential=key_file:{tmp_path}/my key" in unit
    assert "Environment=BACK_KEY_FILE=%d/key_file" in unit


@pytest.mark.parametrize("option", ["--api-key-file", "--model", "--draft-model", "--models-dir"])
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_file_that_is_not_there_is_named(machine, option, dry):
    said = machine.run("lead", "install", option, "nowhere.gguf", *dry)
    assert f"{option} nowhere.gguf does not exist" in said
    assert machine.files() == set()


def test_a_model_that_is_named_needs_no_file(machine):
    assert machine.run("lead", "install", "--draft-model", "builtin") == 0
    assert lead_settings(machine).drafting.draft_model == Path("builtin")


def test_a_folder_that_the_lead_will_make_is_the_same_one_for_the_service(machine, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert machine.run("lead", "install", "--cache-disk", "texts") == 0
    assert lead_settings(machine).disk.cache_disk == tmp_path / "texts"


def test_what_a_system_service_may_not_read_is_refused(machine, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "m.gguf").touch()
    model = ["--model", tmp_path / "home" / "m.gguf"]
    assert "in a home folder" in machine.run("lead", "install", "--system", *model)
    assert machine.files() == set()
    assert machine.run("lead", "install", *model) == 0


def test_an_interpreter_in_a_home_folder_is_refused_for_a_system_service(machine, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "home" / "python"))
    assert "in a home folder" in machine.run("back", "install", "--system")


def test_installing_again_replaces_all_options(machine):
    machine.run("lead", "install", "--port", "7000", "--socket")
    assert machine.state["active"] == ["llama-duo-lead.service", "llama-duo-lead.socket"]
    machine.run("lead", "install", "--top-k", "7")
    assert (lead_settings(machine).port, lead_settings(machine).sampling.top_k) == (5555, 7)
    assert machine.files() == {"llama-duo-lead.service", "llama-duo-lead.toml"}
    assert machine.state["active"] == machine.state["enabled"] == ["llama-duo-lead.service"]


def test_several_services_of_a_program_have_names(machine):
    machine.run("back", "install", "--unit", "llama-duo-gpu1")
    machine.run("back", "install")
    machine.run("back", "remove")
    assert machine.files() == {"llama-duo-gpu1.service", "llama-duo-gpu1.toml"}
    assert machine.state["active"] == ["llama-duo-gpu1.service"]


@pytest.mark.parametrize("trouble", ["bus", "daemon-reload", "enable", "dead"])
def test_nothing_remains_of_an_installation_that_fails(machine, trouble):
    machine.trouble(trouble)
    assert "systemctl daemon-reload" in (said := machine.run("lead", "install")) or "systemctl enable" in said
    assert machine.files() == set()


@pytest.mark.parametrize(
    ("scope", "words"), [([], "sudo loginctl enable-linger "), (["--system"], "systemd does not run here")]
)
def test_where_there_is_no_systemd_the_way_out_is_said(machine, scope, words):
    machine.trouble("bus")
    said = machine.run("lead", "install", *scope)
    assert words in said
    assert "`--dry-run` shows the unit" in said
    assert ("lead service install --system" in said) == (not scope)


@pytest.mark.parametrize("program", ["lead", "back"])
def test_units_can_be_printed_and_nothing_is_written(machine, capsys, program):
    machine.run(program, "install", "--dry-run", *(["--api-key", KEY] if program == "lead" else []))
    printed = capsys.readouterr().out
    assert f"# {machine.units}/llama-duo-{program}.service\n" in printed
    assert "ExecStart=" in printed
    assert KEY not in printed
    assert machine.files() == set()


def test_a_change_that_fails_leaves_the_service_as_it_was(machine):
    machine.run("lead", "install", "--port", "7000")
    before = machine.state["known"]
    machine.trouble("daemon-reload")
    machine.run("lead", "install", "--port", "7001")
    assert lead_settings(machine).port == 7000
    assert machine.state["known"] == before


def test_a_service_that_cannot_be_stopped_is_not_removed(machine):
    machine.run("lead", "install")
    machine.trouble("bus")
    assert "No medium found" in machine.run("lead", "remove")
    assert machine.files() == {"llama-duo-lead.service", "llama-duo-lead.toml"}


def test_a_systemctl_that_hangs_is_not_waited_for(machine, monkeypatch):
    monkeypatch.setattr(service_program, "_SYSTEMCTL_SECONDS", 0.1)
    machine.trouble("hang")
    assert "did not end" in machine.run("lead", "install")
    assert machine.files() == set()


def test_a_machine_without_systemd_is_told_so(machine, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert (
        machine.run("back", "install")
        == "back service: systemctl is not installed: this machine has no systemd"
    )
    assert machine.files() == set()


def test_a_service_that_is_not_there_cannot_be_removed(machine):
    assert machine.run("back", "remove") == "back service: not installed: the service llama-duo-back"
    machine.run("lead", "install")
    assert machine.run("back", "status") == 4


def test_wrong_options_are_refused_before_anything_is_written(machine):
    assert machine.run("lead", "install", "--port", "x") == 2
    assert machine.files() == set()


def test_a_mac_gets_a_launch_agent_without_secrets(machine, monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert machine.run("back", "install", "--key", KEY) == 0
    written = (machine.units / "llama-duo-back.plist").read_bytes()
    agent = plistlib.loads(written)
    assert KEY.encode() not in written
    assert agent["ProgramArguments"][-2:] == ["--config", str(machine.settings / "llama-duo-back.toml")]
    assert agent["RunAtLoad"]
    assert "launchctl bootstrap" in capsys.readouterr().out
    assert machine.run("back", "install", "--system") == "back service: --system is for systemd"
    assert machine.run("back", "remove") == 0
    assert machine.files() == set()


def test_windows_is_referred_to_its_own_services(machine, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    assert "Task Scheduler" in machine.run("back", "install")


def test_the_command_of_the_unit_starts_the_program(machine):
    machine.run("back", "install", "--name", "of-the-unit")
    unit = (machine.units / "llama-duo-back.service").read_text()
    (line,) = (line for line in unit.splitlines() if line.startswith("ExecStart="))
    command = [*line.removeprefix("ExecStart=").split(), "--check"]
    shown = subprocess.run(command, check=False, capture_output=True, text=True)
    assert shown.returncode in {0, 1}, shown.stderr
    assert "model" in shown.stdout


def test_services_that_were_installed_are_known_and_removed_by_name(machine):
    machine.run("lead", "install")
    (machine.settings / "other.toml").touch()
    assert installed_services(is_system=False) == ["llama-duo-lead"]
    assert "llama-duo-lead is removed" in remove_service("llama-duo-lead")
    assert machine.files() == {"other.toml"}
