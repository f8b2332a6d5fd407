"""The exit status of the lead says whether to start it again."""

import importlib
import signal

import pytest

from lead import cli
from lead.__main__ import main
from lead.settings.lead_settings import LeadSettings
from shared.errors import ConfigError
from shared.model_files.builtin import builtin_target
from shared.model_files.hub import Hub


def status_after(error, monkeypatch):
    class Lead:
        def __init__(self, *_):
            raise error

    monkeypatch.setattr("lead.server.server.Lead", Lead)
    monkeypatch.setattr(LeadSettings, "located", lambda self: self)
    with pytest.raises(SystemExit) as end:
        cli.run(LeadSettings.from_options())
    return end.value.code


def test_a_model_of_the_hub_is_served_with_its_projector(monkeypatch, tmp_path):
    served = []
    monkeypatch.setattr(Hub, "fetch", lambda _hub, _model, **_options: builtin_target())
    monkeypatch.setattr("lead.settings.lead_settings.projector_beside", lambda *_: tmp_path / "mmproj")
    monkeypatch.setattr("lead.server.server.Lead", lambda settings, _routed: served.append(settings))
    cli.serving(LeadSettings.from_options(hf_repo="user/repo"))
    assert [each.images.mmproj for each in served] == [tmp_path / "mmproj"]


def test_what_a_person_has_to_change_ends_it_with_1(monkeypatch):
    assert status_after(ConfigError("no such model"), monkeypatch) == 1


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError("no memory"), MemoryError()])
def test_anything_else_ends_it_with_3_and_a_trace(error, monkeypatch, caplog):
    assert status_after(error, monkeypatch) == 3
    assert caplog.records[-1].exc_info[1] is error


def test_a_low_limit_on_open_files_is_in_the_log(monkeypatch, caplog):
    monkeypatch.setattr("shared.descriptors.raise_limit", lambda: 128)
    status_after(ConfigError("the end"), monkeypatch)
    assert "the limit on open files is 128" in caplog.messages[0]


@pytest.mark.parametrize("program", cli.SUBCOMMANDS.values())
def test_each_subcommand_is_a_program(program):
    assert callable(importlib.import_module(program).main)


def test_ctrl_c_in_a_subcommand_lets_it_undo_what_it_has_begun(monkeypatch):
    def convert(_):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("lead.convert.convert_program.main", convert)
    monkeypatch.setattr("sys.argv", ["lead", "convert"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
