"""Any process may be killed, at any moment. The others stay usable, and no process is left behind."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from lab.parts.processes import Program, free_port, start_back, start_lead
from shared.llama.vocabulary import Vocabulary
from shared.model_files.builtin import builtin_draft, builtin_target
from shared.protocol import PROTOCOL_VERSION, Hello
from tests.real.client import ENDLESS, TIMEOUT_S, ask_until_accepted, connect, stream
from tests.real.processes import BACK, LEAD, back_of, engine_of

pytestmark = pytest.mark.real


def test_a_lead_can_be_ended_while_its_engine_is_started_again(own_lead):
    lead, _ = own_lead()
    os.kill(engine_of(lead), signal.SIGKILL)
    lead.wait_for(r"the engine .* ended")
    lead.signal(signal.SIGTERM)
    assert lead.process.wait(TIMEOUT_S) == 0


def test_a_lead_that_cannot_be_announced_says_why_and_ends(tiny_model, tmp_path, monkeypatch):
    (tmp_path / "zeroconf.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    options = ("--host", "0.0.0.0", "--port", "0", "--insecure", "--announce")
    with Program("lead", "--model", str(tiny_model("llama")), *options, *LEAD) as lead:
        lead.wait_for(r"needs zeroconf. Install it: pip install")
        assert lead.process.wait(TIMEOUT_S) == 1


def test_a_back_may_be_started_before_the_lead_and_comes_back_to_one_that_was_started_again(target):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with Program("back", "--lead", url, *BACK) as back:
        back.wait_for("no lead at ")
        for _ in range(2):
            lead, _ = start_lead("--model", str(target), "--port", str(port), *LEAD)
            with lead:
                lead.wait_for(r"back .* joined")
                ask_until_accepted(url)
        assert back.process.poll() is None


def test_connected_backs_do_not_hold_up_sigterm(own_lead):
    """Neither a back with a WebSocket nor a back that waits for updates by HTTP."""
    lead, url = own_lead("--drain-seconds", "3600")
    hello = Hello(
        protocol=PROTOCOL_VERSION,
        name="curl",
        vocabulary=Vocabulary.load(builtin_draft()).identify(),
        n_ctx=0,
        n_sequences=1,
    )
    body = {"messages": [hello.model_dump()]}
    with start_back(url, *BACK), connect(url) as client, ThreadPoolExecutor() as threads:
        (welcome,) = client.post("/v1/speculation", json=body).json()["messages"]
        waiting = threads.submit(client.post, "/v1/speculation?wait=60", json={"back": welcome["back"]})
        lead.signal(signal.SIGTERM)
        assert lead.process.wait(TIMEOUT_S) == 0
        waiting.exception()


def test_sigterm_for_all_its_processes_ends_no_answer(own_lead):
    """`timeout`, supervisors and a machine that shuts down send it to all processes."""
    lead, url = own_lead("--drain-seconds", "240")
    with stream(url, max_tokens=400) as answer:
        answer.until(lambda reply: reply.text)
        for child in (engine_of(lead), lead.process.pid):
            os.kill(child, signal.SIGTERM)
        assert answer.rest().finish_reason == "length"
    assert lead.process.wait(TIMEOUT_S) == 0
    assert "the engine (pid" not in lead.log


def test_a_back_ends_quietly_with_status_0_while_it_drafts(served):
    lead, url = served
    with stream(url, max_tokens=ENDLESS) as answer, back_of(lead, url, "helper") as back:
        answer.until(lambda reply: reply.sources)
        back.signal(signal.SIGTERM)
        assert back.process.wait(TIMEOUT_S) == 0
    assert "Traceback" not in back.log


def exit_of(program):
    """(exit status, log) of a program that ends by itself."""
    with program:
        status = program.process.wait(TIMEOUT_S)
    return status, program.log


def test_a_model_that_cannot_be_used_is_reported_in_one_sentence(tmp_path):
    story, half = tmp_path / "story.gguf", tmp_path / "half.gguf"
    story.write_text("Once upon a time")
    half.write_bytes(builtin_target().read_bytes()[: builtin_target().stat().st_size // 2])
    missing = tmp_path / "nowhere.gguf"
    expected = {
        Program("lead", "--port", "0", "--model", str(missing)): f"{missing} does not exist. Check the path",
        Program("back", "--model", str(missing)): f"{missing} does not exist. Check the path",
        Program("lead", "--port", "0", "--model", str(half)): f"{half} cannot be loaded",
        Program("lead", "generate", "--model", str(story)): f"{story} cannot be loaded",
        Program("back", "--model", str(story)): f"{story} cannot be loaded",
    }
    for program, sentence in expected.items():
        status, log = exit_of(program)
        assert (status, "Traceback" in log, sentence in log) == (1, False, True), log
