"""Conversations outlive the lead (`--cache-disk`): they go on where they were, for their owners alone."""

import os
import signal
import time

import httpx
import pytest

from tests.real.client import PROMPT, ask
from tests.real.processes import engine_of

pytestmark = pytest.mark.real

LONG = " ".join([PROMPT] * 16)
"""More tokens than a text on disk has at least."""
SHORT = {"prompt": LONG, "max_tokens": 10}
MOST_SECONDS = 60.0


@pytest.fixture
def lead(own_lead, tmp_path):
    """Starts leads of two clients, which share a folder."""
    return lambda *more: own_lead("--cache-disk", str(tmp_path), "--api-key", "one,two", *more)


def manifests(folder, n):
    """Those of the folder, once there are `n`."""
    until = time.monotonic() + MOST_SECONDS
    while len(found := list(folder.rglob("*.json"))) < n:
        assert time.monotonic() < until, f"{len(found)} texts on disk"
        os.sched_yield()
    return found


def n_lost(program):
    """How many lines of the log say that a text is lost."""
    return sum("a text on disk is" in line for line in program.log.splitlines())


def kill(program):
    program.signal(signal.SIGKILL)
    program.process.wait()


def test_after_a_crash_a_conversation_goes_on_for_its_owner_alone(lead, tmp_path):
    first, url = lead()
    whole = ask(url, key="one", **SHORT)
    ask(url, key="two", private=True, prompt=f"Secret! {LONG}", max_tokens=1)
    manifests(tmp_path, 1)
    kill(first)
    second, url = lead()
    assert ask(url, key="two", **SHORT).n_cached == 0
    kill(second)
    _, url = lead()
    again = ask(url, key="one", **SHORT)
    assert (again.text, again.n_cached) == (whole.text, whole.n_prompt - 1)
    assert ask(url, key="two", private=True, prompt=f"Secret! {LONG}", max_tokens=1).n_cached < 50


def test_after_a_crash_of_the_engine_it_goes_on_too(lead, tmp_path):
    program, url = lead()
    whole = ask(url, key="one", **SHORT)
    manifests(tmp_path, 1)
    since = program.n_lines()
    os.kill(engine_of(program), signal.SIGKILL)
    program.wait_for("cache on disk: 1 found", since=since)
    again = ask(url, key="one", **SHORT)
    assert (again.text, again.n_cached) == (whole.text, whole.n_prompt - 1)


@pytest.mark.parametrize("what", ["*.kv", "*.json"])
def test_a_damaged_file_costs_one_line_and_no_token(lead, tmp_path, what):
    first, url = lead()
    whole = ask(url, key="one", **SHORT)
    manifests(tmp_path, 1)
    kill(first)
    for path in tmp_path.rglob(what):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
    second, url = lead()
    again = ask(url, key="one", **SHORT)
    assert (again.text, again.n_cached, n_lost(second)) == (whole.text, 0, 1)


def test_leads_that_share_a_folder_at_the_same_time_do_not_harm_each_other(lead, tmp_path):
    (one, first), (other, second) = lead(), lead()
    whole = ask(first, key="one", **SHORT)
    manifests(tmp_path, 1)
    again = ask(second, key="one", **SHORT)
    assert (again.text, again.n_cached) == (whole.text, whole.n_prompt - 1)
    assert n_lost(one) + n_lost(other) == 0


def test_a_folder_that_cannot_be_written_is_said_once(own_lead, tmp_path):
    (tmp_path / "texts").touch()
    program, url = own_lead("--cache-disk", str(tmp_path))
    assert ask(url, **SHORT).n_generated == 10
    assert program.log.count("cache on disk: not used") == 1


def act(url, slot, action, **body):
    answer = httpx.post(f"{url}/slots/{slot}", params={"action": action}, json=body, timeout=MOST_SECONDS)
    return answer.status_code, answer.json()


def test_a_saved_slot_is_restored_by_another_lead(own_lead, tmp_path):
    options = ("--slot-save-path", str(tmp_path))
    first, url = own_lead(*options)
    whole = ask(url, id_slot=2, **SHORT)
    status, saved = act(url, 2, "save", filename="talk")
    assert (status, saved["n_saved"]) == (200, whole.n_prompt + 9)
    assert saved["n_written"] == (tmp_path / "talk").stat().st_size
    kill(first)
    _, url = own_lead(*options)
    status, restored = act(url, 1, "restore", filename="talk")
    assert (status, restored["n_restored"], restored["n_read"]) == (200, saved["n_saved"], saved["n_written"])
    again = ask(url, id_slot=1, **SHORT)
    assert (again.text, again.n_cached) == (whole.text, whole.n_prompt - 1)
    (tmp_path / "talk").write_bytes((tmp_path / "talk").read_bytes()[:-1])
    assert act(url, 1, "restore", filename="talk")[0] == 400
    assert act(url, 1, "erase")[1] == {"id_slot": 1, "n_erased": saved["n_saved"]}
