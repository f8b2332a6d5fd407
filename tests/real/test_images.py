"""A lead with a projector, in front of clients who show it pictures, and who try to break it with files."""

import base64
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from lab.parts.processes import Program, start_lead
from shared.llama.native import FOLDER
from tests.image_files import hostile, png
from tests.real.client import CHAT, TIMEOUT_S, ask, chat
from tests.real.processes import LEAD, back_of, encoder_of
from tests.tiny_projectors import write_tiny_projector

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not any(FOLDER.glob("*mtmd*")), reason="no libmtmd (make images)"),
]
PICTURES = [png(60, 40, 1), png(90, 30, 2)]
N_TOKENS = 12


def part(data):
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def asked(*pictures, **fields):
    content = [{"type": "text", "text": "Look:"}, *map(part, pictures), {"type": "text", "text": "What?"}]
    return chat(max_tokens=N_TOKENS, messages=[{"role": "user", "content": content}], **fields)


def post(url, body):
    return httpx.post(url + CHAT, json=body, timeout=TIMEOUT_S)


def text_of(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["message"]["content"]


@pytest.fixture(scope="module", params=["gemma3", "qwen2vl"])
def sees(request, tiny_model, tmp_path_factory):
    """(lead, url) of each kind."""
    projector = write_tiny_projector(request.param, tmp_path_factory.mktemp("mmproj") / "mmproj.gguf")
    model = str(tiny_model(request.param))
    lead, url = start_lead("--model", model, "--mmproj", str(projector), "--swa-full", *LEAD)
    with lead:
        yield lead, url


def test_a_second_question_about_a_picture_reads_only_what_is_new(sees):
    _, url = sees
    first = post(url, asked(PICTURES[0])).json()
    second = post(url, asked(PICTURES[0])).json()
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == first["usage"]["prompt_tokens"] - 1
    assert text_of(post(url, asked(PICTURES[1]))) != first["choices"][0]["message"]["content"]


def test_backs_change_nothing_about_an_answer_to_a_picture(sees):
    lead, url = sees
    alone = text_of(post(url, asked(*PICTURES)))
    with back_of(lead, url, "helper"):
        assert text_of(post(url, asked(*PICTURES))) == alone


def test_hostile_files_get_a_sentence_and_other_answers_go_on(sees):
    lead, url = sees
    since = lead.n_lines()
    files = [data for name, data in hostile(1)][::8]
    with ThreadPoolExecutor(8) as clients:
        others = [clients.submit(ask, url, max_tokens=N_TOKENS) for _ in range(4)]
        replies = list(clients.map(lambda data: post(url, asked(data)), files))
    assert {reply.status_code for reply in replies} <= {200, 400, 413}
    assert all(reply.json()["error"]["message"] for reply in replies if reply.status_code != 200)
    assert all(other.result().done for other in others)
    assert post(url, asked(*[PICTURES[0]] * 200)).status_code == 400
    log = "\n".join(lead.lines(since))
    assert "Traceback" not in log
    assert "the engine" not in log


def test_a_killed_encoder_is_started_again(sees):
    lead, url = sees
    os.kill(encoder_of(lead), signal.SIGKILL)
    for seed in range(20):
        if (reply := post(url, asked(png(30, 30, 100 + seed)))).status_code == 200:
            break
    assert reply.status_code == 200


def test_a_projector_of_another_model_is_refused_at_the_start(tiny_model, tmp_path):
    projector = write_tiny_projector("gemma3", tmp_path / "mmproj.gguf")
    options = ("--model", str(tiny_model("qwen2vl")), "--mmproj", str(projector), "--port", "0")
    with Program("lead", *options, *LEAD) as lead:
        lead.wait_for(r"is the projector of another model than")
        assert lead.process.wait(TIMEOUT_S) != 0
