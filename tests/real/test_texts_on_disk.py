"""Conversations outlive the lead (`--cache-disk`). They go on where they were, only for their owners."""

import contextlib
import os
import signal
import time

import httpx
import pytest

from lab.parts.processes import start_lead
from tests.real.client import PROMPT, ask
from tests.real.processes import LEAD, engine_of, kill

pytestmark = pytest.mark.real

LONG = " ".join([PROMPT] * 16)
"""More tokens than the minimum of a text on disk."""
SHORT = {"prompt": LONG, "max_tokens": 10}
OTHER = {"prompt": f"Another one. {LONG}", "max_tokens": 10}
SECRET = {"prompt": f"Secret! {LONG}", "max_tokens": 1, "private": True}
N_BEGINNING = 50
"""More tokens than the beginning that these texts share."""
MAX_SECONDS = 240.0


@pytest.fixture
def lead(own_lead, tmp_path):
    """Starts leads that share a folder, for two clients."""
    return lambda *more: own_lead("--cache-disk", str(tmp_path), "--api-key", "one,two", *more)


def manifests(folder, n):
    """The manifests in the folder, once there are `n`."""
    until = time.monotonic() + MAX_SECONDS
    while len(found := list(folder.rglob("*.text"))) < n:
        assert time.monotonic() < until, f"{len(found)} texts on disk"
        time.sleep(0.01)
    return found


def n_lost(program):
    """The number of lines in the log that report a lost text."""
    return sum("a text on disk" in line for line in program.log.splitlines())


def test_after_a_crash_of_engine_and_lead_a_conversation_goes_on_for_its_owner_alone(lead, tmp_path):
    first, url = lead()
    whole, other = ask(url, key="one", **SHORT), ask(url, key="one", **OTHER)
    ask(url, key="two", **SECRET)
    manifests(tmp_path, 2)
    since = first.n_lines()
    os.kill(engine_of(first), signal.SIGKILL)
    first.wait_for("cache on disk: found 2", since=since)
    again = ask(url, key="one", **SHORT)
    assert (again.text, again.n_cached) == (whole.text, whole.n_prompt - 1)
    kill(first)
    _, url = lead()
    assert ask(url, key="two", **SHORT).n_cached == 0
    again = ask(url, key="one", **OTHER)
    assert (again.text, again.n_cached) == (other.text, other.n_prompt - 1)
    assert ask(url, key="two", **SECRET).n_cached < N_BEGINNING


def test_a_damaged_file_costs_one_line_and_no_token(lead, tmp_path):
    first, url = lead()
    whole = ask(url, key="one", **SHORT)
    (manifest,) = manifests(tmp_path, 1)
    other = ask(url, key="one", **OTHER)
    manifests(tmp_path, 2)
    engine = engine_of(first)
    kill(first)
    with contextlib.suppress(ProcessLookupError):  # it might look at the damage before it ends
        os.kill(engine, signal.SIGKILL)
    for path in (manifest, *set(tmp_path.rglob("*.kv")) - set(tmp_path.rglob(f"{manifest.stem}*"))):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
    second, url = lead()
    again = ask(url, key="one", **SHORT)
    assert (again.text, again.n_cached, n_lost(second)) == (whole.text, 0, 1)
    again = ask(url, key="one", **OTHER)
    assert (again.text, again.n_cached < N_BEGINNING, n_lost(second)) == (other.text, True, 2)


def test_a_folder_that_cannot_be_written_is_said_once(own_lead, tmp_path):
    (tmp_path / "texts").touch()
    program, url = own_lead("--cache-disk", str(tmp_path))
    assert ask(url, **SHORT).n_generated == 10
    assert program.log.count("cache on disk is off") == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def two_leads(target, folder):
    """Leads that share a folder at the same time: (lead, url) of each."""
    options = ("--cache-disk", str(folder), "--slot-save-path", str(folder))
    one, first = start_lead("--model", str(target), *LEAD, *options)
    with one:
        other, second = start_lead("--model", str(target), *LEAD, *options)
        with other:
            yield (one, first), (other, second)


def test_leads_that_share_a_folder_at_the_same_time_do_not_harm_each_other(two_leads, folder):
    (one, first), (other, second) = two_leads
    whole = ask(first, **SHORT)
    manifests(folder, 1)
    again = ask(second, **SHORT)
    assert (again.text, again.n_cached) == (whole.text, whole.n_prompt - 1)
    assert n_lost(one) + n_lost(other) == 0


def act(url, slot, action, **body):
    answer = httpx.post(f"{url}/slots/{slot}", params={"action": action}, json=body, timeout=MAX_SECONDS)
    return answer.status_code, answer.json()


def test_a_saved_slot_is_restored_by_another_lead(two_leads, folder):
    (_, first), (_, second) = two_leads
    text = {"prompt": "A short one, which is not on disk by itself. " * 4, "max_tokens": 10}
    whole = ask(first, id_slot=2, **text)
    status, saved = act(first, 2, "save", filename="talk")
    assert (status, saved["n_saved"]) == (200, whole.n_prompt + 9)
    assert saved["n_written"] == (folder / "talk").stat().st_size
    status, restored = act(second, 1, "restore", filename="talk")
    assert (status, restored["n_restored"], restored["n_read"]) == (200, saved["n_saved"], saved["n_written"])
    again = ask(second, id_slot=1, **text)
    assert (again.text, again.n_cached) == (whole.text, whole.n_prompt - 1)
    (folder / "talk").write_bytes((folder / "talk").read_bytes()[:-1])
    assert act(second, 1, "restore", filename="talk")[0] == 400
    assert act(second, 1, "erase")[1] == {"id_slot": 1, "n_erased": saved["n_saved"]}
