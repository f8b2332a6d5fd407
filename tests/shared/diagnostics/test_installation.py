import sys

import pytest

from back.settings import BackSettings
from chat.settings import ChatSettings
from lead.settings.lead_settings import LeadSettings
from shared.diagnostics.installation import installation
from shared.llama import library


@pytest.mark.parametrize("program", [LeadSettings, BackSettings])
def test_version_names_libraries_kernels_and_devices(program, capsys):
    with pytest.raises(SystemExit) as ended:
        program.from_command_line(["--version"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert shown.startswith("llama-duo ")
    assert f"CPU kernels: {library.kernels()}\n" in shown
    assert "llama-cpp-python 0." in shown
    assert "device CPU: " in shown


def test_chat_says_its_version_without_loading_llama_cpp(capsys):
    with pytest.raises(SystemExit):
        ChatSettings.from_command_line(["--version"])
    assert capsys.readouterr().out.count("\n") == 1


def test_kernels_are_those_that_are_in_use(monkeypatch):
    said = b"CPU : SSE3 = 1 | AVX512 = 0 | SVE_CNT = 32 | REPACK = 1 | "
    monkeypatch.setattr(library.llama_cpp, "llama_print_system_info", lambda: said)
    assert library.kernels() == "SSE3 SVE_CNT REPACK"


@pytest.mark.parametrize("error", [OSError("libgomp.so.1: no such file"), AttributeError("llama_decode")])
def test_a_library_that_does_not_load_is_part_of_the_report(monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setattr(library, "start", fail)
    assert list(installation())[-1] == f"llama.cpp does not load: {error}"


def test_no_library_at_all_is_part_of_the_report(monkeypatch):
    monkeypatch.setitem(sys.modules, "shared.llama", None)
    assert list(installation())[-1].startswith("llama.cpp does not load: ")
