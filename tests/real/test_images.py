"""A lead with a projector, for clients that show it pictures, and for hostile clients with bad files."""

import base64
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from lab.parts.processes import Program, start_lead
from shared.llama.native import FOLDER
from tests.image_files import hostile, png
from tests.real.client import CHAT, PROMPT, TIMEOUT_S, ask, chat, stream
from tests.real.processes import LEAD, back_of, engine_of
from tests.tiny_projectors import write_tiny_projector

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not any(FOLDER.glob("*mtmd*")), reason="no libmtmd (make images)"),
]
PICTURES = [png(60, 40, 1), png(90, 30, 2)]
N_TOKENS = 12
LONG = " ".join([PROMPT] * 16)
"""More tokens than the minimum of a text on disk."""


def part(data):
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def asked(*pictures, text="Look:", **fields):
    content = [{"type": "text", "text": text}, *map(part, pictures), {"type": "text", "text": "What?"}]
    return chat(**{"max_tokens": N_TOKENS, "messages": [{"role": "user", "content": content}]} | fields)


def post(url, body):
    return httpx.post(url + CHAT, json=body, timeout=TIMEOUT_S)


def text_of(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["message"]["content"]


def reused(reply):
    """(text, whether only the last token of the prompt was read)."""
    usage = reply.json()["usage"]
    return text_of(reply), usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1


def act(url, action):
    """Save or restore slot 1."""
    done = httpx.post(
        f"{url}/slots/1", params={"action": action}, json={"filename": "talk"}, timeout=TIMEOUT_S
    )
    assert done.status_code == 200, done.text


@pytest.fixture(scope="module", params=["gemma3", "qwen2vl"])
def options(request, tiny_sight):
    """The options of a lead of each kind."""
    model, projector = map(str, tiny_sight(request.param))
    return ("--model", model, "--mmproj", projector, "--swa-full", *LEAD)


@pytest.fixture(scope="module")
def sees(options):
    """(lead, url) of a lead of each kind."""
    lead, url = start_lead(*options)
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


@pytest.mark.parametrize("n_characters", [1, 300])
def test_an_answer_about_pictures_goes_on_with_the_same_text_when_its_engine_is_killed(sees, n_characters):
    lead, url = sees
    question = asked(*PICTURES, max_tokens=150)
    whole = text_of(post(url, question))
    with stream(url, **question) as answer:
        answer.until(lambda reply: len(reply.text) >= n_characters)
        os.kill(engine_of(lead), signal.SIGKILL)
        reply = answer.rest()
    assert (reply.text, reply.error, reply.done) == (whole, None, True)
    assert text_of(post(url, question)) == whole


ON_DISK = asked(*PICTURES, text=LONG)
SAVED = asked(*PICTURES, id_slot=1)


@pytest.fixture(scope="module")
def continued(options, tmp_path_factory):
    """(answers of a lead that has ended, the URL of the next lead with its folder, the folder)."""
    folder = tmp_path_factory.mktemp("texts")
    options = (*options, "--cache-disk", str(folder), "--slot-save-path", str(folder))
    first, url = start_lead(*options)
    with first:
        whole = [text_of(post(url, question)) for question in (ON_DISK, SAVED)]
        act(url, "save")
    second, url = start_lead(*options)
    with second:
        yield whole, url, folder


def test_a_conversation_about_pictures_goes_on_from_disk(continued):
    (whole, _), url, folder = continued
    assert reused(post(url, ON_DISK)) == (whole, True)
    assert not any(PICTURES[0] in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_saved_slot_with_pictures_is_restored_by_another_lead(continued):
    (_, whole), url, _ = continued
    act(url, "restore")
    assert reused(post(url, SAVED)) == (whole, True)
    act(url, "restore")
    others = asked(PICTURES[0], PICTURES[0], id_slot=1)
    text, is_reused = reused(post(url, others))
    assert not is_reused
    assert text == text_of(post(url, others | {"id_slot": 3, "cache_prompt": False}))


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


def test_a_projector_of_another_model_is_refused_at_the_start(tiny_model, tmp_path):
    projector = write_tiny_projector("gemma3", tmp_path / "mmproj.gguf")
    options = ("--model", str(tiny_model("qwen2vl")), "--mmproj", str(projector), "--port", "0")
    with Program("lead", *options, *LEAD) as lead:
        lead.wait_for(r"does not belong to")
        assert lead.process.wait(TIMEOUT_S) != 0


def test_a_model_of_a_folder_sees_with_the_projector_beside_it(tiny_sight, tmp_path):
    (tmp_path / "seeing").mkdir()
    for path, name in zip(tiny_sight("gemma3"), ("model.gguf", "mmproj-F16.gguf"), strict=True):
        (tmp_path / "seeing" / name).symlink_to(path)
    with Program("lead", "--models-dir", str(tmp_path), "--port", "0", *LEAD) as lead:
        url = lead.wait_for(r"listening on (http://[^\s,]+)").group(1)
        assert text_of(post(url, asked(PICTURES[0], model="seeing")))
