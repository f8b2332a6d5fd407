"""Leads with all layers on a GPU. No draft, death, sleep or replacement changes their text."""

import os
import re
import signal
from pathlib import Path

import pytest

from lab.parts.processes import ProgramError, start_lead
from shared.llama import devices
from shared.model_files.builtin import builtin_draft, builtin_target
from shared.sandbox import NO_GPU
from tests.python_runs import run_python
from tests.real.client import CHAT, ask, chat, connect, get, stream
from tests.real.processes import LEAD, back_of, engine_of, run_to_end

pytestmark = pytest.mark.gpu

ON_GPU = ("--n-gpu-layers", "99", "--flash-attn", "off", "--ctx-size", "2048")
N_TOKENS = 24
BOUND = 0.05
"""Tokens whose logits differ by less may change places when other sequences share their batch."""

_OF_A_DRIVER = re.compile(r"libvulkan_|/dev/nvidia\d")
"""Files that are mapped once a GPU is open. libcuda.so proves nothing: llama.cpp is linked with it."""


def lead_on_gpu(*arguments):
    return start_lead("--model", str(builtin_target()), *LEAD, *ON_GPU, *arguments)


def tokens_of(url):
    """(token, distance of its logit to the next highest) for each token of a greedy answer."""
    body = chat(max_tokens=N_TOKENS, logprobs=True, top_logprobs=2)
    with connect(url) as client:
        answer = client.post(CHAT, json=body).json()
    found = []
    for each in answer["choices"][0]["logprobs"]["content"]:
        first, second = (top["logprob"] for top in each["top_logprobs"])
        found.append((each["token"], first - second))
    return found


@pytest.fixture(scope="module")
def served():
    lead, url = lead_on_gpu("--engine-timeout", "60", "--metrics")
    with lead:
        yield lead, url


@pytest.fixture(scope="module")
def alone(served):
    """The tokens of the lead's answer while no back drafts."""
    return tokens_of(served[1])


def assert_same(tokens, alone):
    for (token, _), (expected, margin) in zip(tokens, alone, strict=True):
        if token != expected:
            assert margin <= BOUND
            return


def test_beside_a_back_on_the_cpu(served, alone):
    lead, url = served
    with back_of(lead, url, "helper", "--n-gpu-layers", "0"):
        for _ in range(3):
            assert_same(tokens_of(url), alone)


@pytest.mark.parametrize(
    "drafter",
    [
        ("--draft-model", str(builtin_draft()), "--policy", "fixed"),
        ("--ngram", "--suffix-memory", "8", "--policy", "fixed"),
        ("--back", str(builtin_draft()), "--back-gpu-layers", "0", "--policy", "sync"),
    ],
    ids=["model in the engine", "lookups", "own back"],
)
def test_beside_its_own_drafters(alone, drafter):
    arguments = [option for option in LEAD if drafter[0] != "--ngram" or option != "--no-ngram"]
    lead, url = start_lead("--model", str(builtin_target()), *arguments, *ON_GPU, *drafter, "--depth", "3")
    with lead:
        for _ in range(2):
            assert_same(tokens_of(url), alone)
        assert get(url, "/v1/speculation")["planner"]["n_draft_tokens"] > 0


def test_only_the_engine_opens_the_driver(served):
    lead, _ = served
    engine = engine_of(lead)

    def maps_driver(pid):
        return bool(_OF_A_DRIVER.search(Path(f"/proc/{pid}/maps").read_text()))

    pids = [lead.process.pid, *children_of(lead.process.pid)]
    assert engine in pids
    assert [pid for pid in pids if maps_driver(pid)] == [engine]


def children_of(pid):
    """All children of a process, and their children."""
    below = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [each for child in below for each in (child, *children_of(child))]


def test_the_engines_death_changes_nothing(served):
    lead, url = served
    expected = ask(url, max_tokens=N_TOKENS)
    with stream(url, max_tokens=N_TOKENS) as answer:
        answer.until(lambda reply: len(reply.text) > 20)
        os.kill(engine_of(lead), signal.SIGKILL)
        reply = answer.rest()
    assert (reply.text, reply.error, reply.done) == (expected.text, None, True)


def test_it_sleeps_and_wakes():
    lead, url = lead_on_gpu("--sleep-idle-seconds", "2")
    with lead:
        expected = ask(url, max_tokens=8).text
        since = lead.n_lines()
        lead.wait_for("The model is freed", since=since)
        assert ask(url, max_tokens=8).text == expected


def test_another_lead_takes_over(served):
    _, url = served
    expected = ask(url, max_tokens=8).text
    first, at = lead_on_gpu()
    port = at.rpartition(":")[2]
    with first:
        second, _ = lead_on_gpu("--port", port, "--takeover")
        with second:
            first.process.wait(120)
            assert ask(at, max_tokens=8).text == expected


def test_bits_are_not_promised():
    with pytest.raises(
        ProgramError,
        match=r"--exact is not possible here: .* layers on a GPU",
    ):
        start_lead("--model", str(builtin_target()), *LEAD, *ON_GPU, "--exact", "on")


@pytest.mark.parametrize("order", [("hidden", "visible"), ("visible", "hidden", "visible")], ids=str)
def test_nor_are_they_after_starts_without_the_gpu(monkeypatch, tmp_path, order):
    """The measurements of a start are remembered together with the devices that it has measured."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    arguments = ("--model", str(builtin_target()), *LEAD, *ON_GPU, "--exact", "on")
    for state in order:
        if state == "visible":
            with pytest.raises(
                ProgramError,
                match=r"--exact is not possible here: .* layers on a GPU",
            ):
                start_lead(*arguments)
            continue
        with monkeypatch.context() as patch:
            for name, value in NO_GPU.items():
                patch.setenv(name, value)
            lead, url = start_lead(*arguments)
        with lead:
            assert get(url, "/v1/speculation")["lead"]["exact"]


def run(*command):
    """The output of `python -m command`."""
    return run_to_end(*command, "--model", str(builtin_target()), *ON_GPU).stdout


def test_a_check_names_the_device():
    assert devices.all_devices()[0].name in run("lead", "--check")


def test_a_plan_is_made():
    assert "tokens/s" in run("lead", "plan")


def test_doctor_knows_a_lead_on_a_gpu(served):
    done = run_python("-m", "back", "doctor", "--lead", served[1], "--n-gpu-layers", "0", timeout=280)
    assert "the lead accepts this back" in done.stdout
    assert "a GPU helps" not in done.stdout
