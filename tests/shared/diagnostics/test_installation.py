import pytest

from back.settings import BackSettings
from chat.settings import ChatSettings
from lead.settings.lead_settings import LeadSettings
from shared.diagnostics.installation import installation
from shared.errors import LibraryError
from shared.llama import library


@pytest.mark.parametrize("program", [LeadSettings, BackSettings])
def test_version_names_libraries_kernels_and_devices(program, capsys):
    with pytest.raises(SystemExit) as ended:
        program.from_command_line(["--version"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert shown.startswith("llama-duo ")
    assert f"CPU kernel {library.describe_kernel()}\n" in shown
    assert "llama-cpp-python 0." in shown
    assert "device CPU: " in shown


def test_chat_says_its_version_without_loading_llama_cpp(capsys):
    with pytest.raises(SystemExit):
        ChatSettings.from_command_line(["--version"])
    assert capsys.readouterr().out.count("\n") == 1


def test_a_library_that_does_not_load_is_part_of_the_report(monkeypatch):
    def fail():
        raise LibraryError("llama.cpp cannot be loaded: libgomp.so.1: no such file")

    monkeypatch.setattr(library, "describe_kernel", fail)
    assert list(installation())[-1] == "llama.cpp cannot be loaded: libgomp.so.1: no such file"
