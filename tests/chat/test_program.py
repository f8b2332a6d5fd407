import contextlib
import errno
import io
import json
import sys
import tempfile

import pytest

from chat import program
from chat.program import main, run
from chat.settings import ChatSettings
from shared.errors import ConfigError
from tests.chat.fakes import FakeLead, Terminal, answers, is_away, refuses, streams, text_event


@pytest.fixture
def lead(monkeypatch):
    fake = FakeLead()
    monkeypatch.setattr(program, "LeadClient", lambda *_, **__: fake.client())
    return fake


def pipe(text, err=None, **settings):
    """The status and the output of chat with `text` on stdin."""
    out = io.StringIO()
    status = run(ChatSettings(**settings), io.StringIO(text), out, err or io.StringIO())
    return status, out.getvalue()


def test_piped_input_is_one_question(lead):
    lead.replies.append(answers("Hello", (".", "back-1")))
    assert pipe("Hi\n\nwho is there?\n") == (0, "Hello.\n")
    assert lead.messages() == [("user", "Hi\n\nwho is there?")]


def test_stdin_is_not_read_if_the_question_is_an_argument(lead):
    class Untouchable(io.StringIO):
        def read(self, *_):
            raise AssertionError

    lead.replies.append(answers("Hello."))
    out = io.StringIO()
    assert run(ChatSettings(question=["Hi", "there"]), Untouchable(), out, io.StringIO()) == 0
    assert out.getvalue() == "Hello.\n"
    assert lead.messages() == [("user", "Hi there")]


def test_a_dash_stands_for_stdin(lead):
    lead.replies.append(answers("A lot."))
    pipe("+ 1\n- 2\n", question=["What changed?", "-"])
    assert lead.messages() == [("user", "What changed? + 1\n- 2")]


@pytest.mark.usefixtures("lead")
def test_an_empty_question_is_an_error():
    with pytest.raises(ConfigError, match="there is no question"):
        pipe("\n")


def test_a_failed_question_sets_the_exit_status(lead):
    lead.replies.append(is_away)
    assert pipe("Hi\n") == (1, "")


def test_json_output_is_one_object_with_statistics(lead):
    lead.replies.append(answers("Hello", (".", "back-1")))
    status, out = pipe("Hi", output="json")
    assert (status, out.count("\n")) == (0, 1)
    assert json.loads(out) == {
        "answer": "Hello.",
        "finish_reason": "stop",
        "seed": 42,
        "n_prompt_tokens": 10,
        "n_tokens": 2,
        "tokens_per_second": 10.0,
        "n_drafted": 2,
        "n_accepted": 1,
        "n_accepted_by_source": {"back-1": 1},
    }


def test_json_output_is_empty_if_there_is_no_answer(lead):
    lead.replies.append(refuses(500, "no luck"))
    assert pipe("Hi", output="json") == (1, "")


@pytest.mark.usefixtures("lead")
def test_json_output_is_refused_at_an_interactive_prompt():
    with pytest.raises(ConfigError, match="--json is for questions"):
        run(ChatSettings(output="json"), Terminal(), io.StringIO(), io.StringIO())


def test_lines_are_answered_in_turn(lead):
    lead.replies += [answers("Hello."), answers("Me.")]
    assert pipe("Hi\n\n:seed 7\nWho is there?\n", lines=True) == (0, "Hello.\nMe.\n")


def test_the_next_line_is_answered_after_failed_ones_which_are_explained_on_stderr(lead):
    lead.replies += [is_away, answers("Hello.")]
    err = io.StringIO()
    assert pipe("Hi\n:nwe\nHi\n", err, lines=True) == (1, "Hello.\n")
    assert err.getvalue() == (
        "There is no answer at http://lead:5555 (Connection refused). Start lead there, or set "
        "another address with --lead.\nThere is no command :nwe. Did you mean :new? (To send it "
        "to the model, put a space before the colon.)\n"
    )


@pytest.fixture
def arguments(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["chat"])
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hi\n"))


NO_SPACE = "chat: the answer cannot be written: No space left on device\n"


@pytest.mark.usefixtures("arguments")
@pytest.mark.parametrize(
    ("error", "ending"),
    [(BrokenPipeError(), (None, "")), (OSError(errno.ENOSPC, "No space left on device"), (1, NO_SPACE))],
    ids=["a closed pipe", "a full disk"],
)
def test_output_that_cannot_be_written_is_no_traceback(lead, monkeypatch, capsys, error, ending):
    class Broken(io.StringIO):
        def write(self, _):
            raise error

        def fileno(self):
            return stand_in.fileno()

    lead.replies.append(answers("Hello."))
    with tempfile.TemporaryFile("w") as stand_in:
        monkeypatch.setattr(sys, "stdout", Broken())
        with pytest.raises(SystemExit) if ending[0] else contextlib.nullcontext() as caught:
            main()
    assert (caught and caught.value.code, capsys.readouterr().err) == ending


@pytest.mark.usefixtures("arguments")
def test_ctrl_c_in_a_pipe_sets_the_exit_status(lead):
    lead.replies.append(streams(text_event("Once"), KeyboardInterrupt()))
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130


@pytest.mark.usefixtures("arguments", "lead")
def test_an_unreadable_key_file_is_reported_without_a_traceback(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["chat", "--api-key-file", "/nowhere/key"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "chat: cannot read the key in /nowhere/key" in capsys.readouterr().err
