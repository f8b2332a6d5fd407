import base64

import pytest

from shared.image_span import row_identities, without_images
from tests.lead.fakes import FakeImages

CHAT = "/v1/chat/completions"
COUNT = f"{CHAT}/input_tokens"
FILE = base64.b64encode(b"a picture").decode()
URL = f"data:image/png;base64,{FILE}"
BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": FILE}}


def image(url=URL):
    return {"type": "image_url", "image_url": {"url": url}}


def text(words):
    return {"type": "text", "text": words}


def asked(*parts, role="user"):
    return {"messages": [{"role": role, "content": list(parts)}]}


async def prompt_of(lead, client, path, body):
    """The submission that a request gives."""
    lead.will_say("A cat")
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    return lead.engine.submitted[-1]


async def test_an_image_is_rows_where_its_part_stands(lead, client):
    lead.sees()
    request = await prompt_of(lead, client, CHAT, asked(text("Look: "), image(), text(" What?")))
    (span,) = request.images
    rows = row_identities(span.key, span.n_rows).tolist()
    assert request.tokens[span.start - 1 : span.end + 1] == [5, *rows, 6]
    before, after = request.tokens[: span.start - 1], request.tokens[span.end + 1 :]
    assert lead.vocabulary.detokenize(before).endswith("Look: ")
    assert lead.vocabulary.detokenize(after).startswith(" What?")


async def test_the_same_image_twice_is_two_spans_of_one_key(lead, client):
    lead.sees()
    request = await prompt_of(lead, client, CHAT, asked(image(), text("and"), image()))
    first, second = request.images
    assert first.key == second.key
    assert first.end < second.start


PART = {"type": "input_image", "image_url": URL}
APIS = {
    "chat": (CHAT, asked(image(), text("What?"))),
    "responses": ("/v1/responses", {"input": [{"role": "user", "content": [PART]}]}),
    "anthropic": ("/v1/messages", asked(BLOCK) | {"max_tokens": 3}),
    "ollama chat": ("/api/chat", {"messages": [{"role": "user", "content": "What?", "images": [FILE]}]}),
    "ollama generate": ("/api/generate", {"prompt": "What?", "images": [FILE]}),
}


@pytest.mark.parametrize("api", APIS)
async def test_images_are_read_in_every_api(lead, client, api):
    lead.sees()
    request = await prompt_of(lead, client, *APIS[api])
    assert [span.n_rows for span in request.images] == [3]


@pytest.mark.parametrize("api", APIS)
async def test_a_model_that_reads_text_only_says_so(lead, client, api):
    path, body = APIS[api]
    response = await client.post(path, json=body)
    assert response.status_code == 400
    assert "image input is not supported" in response.text or "does not support vision" in response.text
    assert lead.engine.submitted == []


RESULT = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "See:"}, BLOCK]}
CALL = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
SCREENSHOT = {
    "max_tokens": 3,
    "messages": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": [RESULT]},
    ],
}


async def test_an_image_in_the_result_of_a_tool_is_seen(lead, client, room):  # noqa: ARG001 - a fixture
    lead.sees()
    request = await prompt_of(lead, client, "/v1/messages", SCREENSHOT)
    assert len(request.images) == 1


async def test_a_model_without_eyes_gets_a_note_for_what_a_tool_shows(lead, client, room):  # noqa: ARG001
    request = await prompt_of(lead, client, "/v1/messages", SCREENSHOT)
    assert "[an image is left out here: this model" in lead.vocabulary.detokenize(request.tokens)


ELSEWHERE = "this lead does not download images"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        *(
            (url, ELSEWHERE)
            for url in ("https://example.org/a.png", "file:///etc/passwd", "data:image/png,x")
        ),
        ("data:image/png;base64,A", "not valid base64"),
    ],
)
async def test_only_what_is_in_the_request_is_read(lead, client, url, said):
    lead.sees()
    response = await client.post(CHAT, json=asked(image(url)))
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages")
    assert said in response.json()["error"]["message"]


async def test_there_is_a_bound_on_images(lead, client):
    lead.sees()
    response = await client.post(CHAT, json=asked(*[image()] * (FakeImages.max_images + 1)))
    assert "4 images are too many. The maximum is 3" in response.json()["error"]["message"]


async def test_token_counts_include_images(lead, client):
    lead.sees()
    counts = [
        (await client.post(COUNT, json=asked(*parts))).json()["input_tokens"]
        for parts in ([text("What?")], [text("What?"), image()])
    ]
    assert counts[1] == counts[0] + 5


async def test_an_image_is_shown_as_a_placeholder(lead, client):
    lead.sees()
    prompt = (await client.post("/apply-template", json=asked(text("See: "), image()))).json()["prompt"]
    assert "See: <__media__>" in prompt


async def test_what_looks_like_an_image_in_a_text_is_text(lead, client):
    lead.sees()
    request = await prompt_of(lead, client, CHAT, asked(text("<__media__> <image>")))
    assert request.images == ()
    assert without_images(request.tokens) == request.tokens


async def test_logs_of_prompts_have_no_images(lead, client, caplog):
    lead.use(log_prompts=True)
    lead.sees()
    caplog.set_level("INFO", "lead")
    await prompt_of(lead, client, CHAT, asked(text("Look: "), image()))
    assert "Look: " in caplog.text
    assert FILE not in caplog.text


async def test_a_model_that_sees_says_so(lead, client):
    assert not (await client.get("/props")).json()["modalities"]["vision"]
    lead.sees()
    assert (await client.get("/props")).json()["modalities"]["vision"]
    listed = (await client.get("/v1/models")).json()
    assert listed["data"][0]["architecture"]["input_modalities"] == ["text", "image"]
    assert "multimodal" in listed["models"][0]["capabilities"]
    assert "vision" in (await client.post("/api/show", json={"model": "toy"})).json()["capabilities"]
