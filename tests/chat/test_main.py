"""The program as a whole: what it imports, and its exit status."""

import io
import subprocess
import sys

import pytest

from chat import __main__
from chat.__main__ import main, run
from chat.settings import ChatSettings
from tests.chat.fakes import FakeLead, answers, is_away, streams, text_event


@pytest.fixture
def lead(monkeypatch):
    fake = FakeLead()
    monkeypatch.setattr(__main__, "LeadClient", lambda *_, **__: fake.client())
    return fake


def pipe(text, out=None):
    """(status, stdout) with `text` on stdin."""
    out = out or io.StringIO()
    status = run(ChatSettings(), io.StringIO(text), out, io.StringIO())
    return status, out.getvalue()


def test_each_piped_line_is_answered(lead):
    lead.replies += [answers("Hello."), answers("Me.")]
    assert pipe("Hi\n\nWho is there?\n") == (0, "Hello.\nMe.\n")


def test_a_failure_in_a_pipe_is_the_exit_status(lead):
    lead.replies += [is_away, answers("Hello.")]
    assert pipe("Hi\nHi\n") == (1, "Hello.\n")


@pytest.mark.usefixtures("lead")
def test_quit_ends_a_pipe():
    assert pipe(":quit\nHi\n") == (0, "")


@pytest.fixture
def arguments(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["chat"])
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hi\n"))


@pytest.mark.usefixtures("arguments")
def test_a_closed_output_pipe_ends_quietly(lead, monkeypatch, tmp_path, capsys):
    class Closed(io.StringIO):
        def write(self, _):
            raise BrokenPipeError

        def fileno(self):
            return stand_in.fileno()

    lead.replies.append(answers("Hello."))
    with (tmp_path / "stdout").open("w") as stand_in:
        monkeypatch.setattr(sys, "stdout", Closed())
        main()
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("arguments")
def test_ctrl_c_in_a_pipe_is_the_exit_status(lead):
    lead.replies.append(streams(text_event("Once"), KeyboardInterrupt()))
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130


def test_neither_numpy_nor_llama_is_imported():
    code = "import sys, chat.__main__, chat.prompt; print(sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'chat.prompt'" in modules
    assert "'numpy'" not in modules
    assert "'llama_cpp'" not in modules
    assert "'lead" not in modules


@pytest.mark.usefixtures("arguments", "lead")
def test_a_key_that_cannot_be_read_is_said_in_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["chat", "--api-key-file", "/nowhere/key"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "chat: cannot read the key in /nowhere/key" in capsys.readouterr().err
