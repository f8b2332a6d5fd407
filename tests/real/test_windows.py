"""back and chat need no feature that Windows lacks. `as_windows.py` removes such features on Linux."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.parts.processes import start_back, start_lead
from shared.model_files.builtin import builtin_draft, builtin_target
from tests.real.client import TIMEOUT_S, ask_until_accepted, chat, post
from tests.real.processes import BACK, LEAD

pytestmark = pytest.mark.real

AS_WINDOWS = [sys.executable, str(Path(__file__).with_name("as_windows.py"))]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.fixture(scope="module")
def url():
    lead, url = start_lead("--model", str(builtin_target()), *LEAD)
    with lead:
        yield url


def printed(program, *arguments):
    command = [*AS_WINDOWS, f"{program}.__main__", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_back_drafts_also_beside_grammars_and_ends_with_ctrl_c(url):
    with start_back(
        url, "--model", str(builtin_draft()), *BACK, command=[*AS_WINDOWS, "back.__main__"]
    ) as back:
        assert ask_until_accepted(url).done
        constrained = chat(response_format={"type": "json_schema", "json_schema": {"schema": SCHEMA}})
        assert post(url, constrained).status_code == 200
        assert ask_until_accepted(url).done
        back.process.send_signal(signal.SIGINT)
        assert back.process.wait(TIMEOUT_S) == 0
        assert "Traceback" not in back.log


@pytest.mark.parametrize("program", ["back", "chat"])
def test_help_is_printed(program):
    status, out, error = printed(program, "--help")
    assert (status, error) == (0, "")
    assert out.startswith(f"usage: {program} ")


def test_chat_prints_an_answer(url):
    status, out, error = printed("chat", "--lead", url, "--max-tokens", "8", "Why is the sky blue?")
    assert (status, error) == (0, "")
    assert out.strip()


def test_what_windows_cannot_do_is_a_sentence():
    assert "this system cannot pin" in printed("back", "--cpus", "0")[2]
    assert "Task Scheduler" in printed("back", "service", "install")[2]


def test_a_lead_is_referred_to_wsl():
    assert printed("lead", "--model", "m.gguf")[::2] == (
        1,
        "lead runs on Linux and macOS. On Windows, use WSL 2\n",
    )


def test_what_is_taken_away_is_missed():
    """Otherwise the tests above would prove nothing."""
    missed = subprocess.run([*AS_WINDOWS, "shared.fork_server"], capture_output=True, text=True, check=False)
    assert "No module named 'resource'" in missed.stderr
