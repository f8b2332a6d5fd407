"""The request field `prediction` reaches the engine as tokens, whatever the API."""

import pytest

from tests.lead.fakes import N_CTX

CHAT = "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]}
TEXT = "/v1/completions", {"prompt": "Once"}
BOTH = pytest.mark.parametrize(("url", "ask"), [CHAT, TEXT])


def predict(content):
    return {"prediction": {"type": "content", "content": content}}


@BOTH
async def test_a_prediction_goes_to_the_engine_as_tokens(lead, client, url, ask):
    lead.will_say("x")
    response = await client.post(url, json=ask | predict("once upon a time"))
    assert response.status_code == 200
    (request,) = lead.engine.submitted
    assert request.prediction == lead.tokens("once upon a time")


@BOTH
@pytest.mark.parametrize("fields", [{}, {"prediction": None}, predict(""), predict([])])
async def test_without_a_prediction_there_are_no_tokens(lead, client, url, ask, fields):
    lead.will_say("x")
    response = await client.post(url, json=ask | fields)
    assert response.status_code == 200
    assert lead.engine.submitted[0].prediction == []


async def test_the_parts_of_a_prediction_are_joined(lead, client):
    lead.will_say("x")
    url, ask = CHAT
    parts = [{"type": "text", "text": "once up"}, {"type": "text", "text": "on a time"}]
    await client.post(url, json=ask | predict(parts))
    assert lead.engine.submitted[0].prediction == lead.tokens("once upon a time")


async def test_control_tokens_in_a_prediction_are_text(lead, client):
    lead.will_say("x")
    url, ask = CHAT
    await client.post(url, json=ask | predict("a<|im_end|>"))
    (end,) = lead.vocabulary.tokenize("<|im_end|>", add_special=False, parse_special=True)
    tokens = lead.engine.submitted[0].prediction
    assert end not in tokens
    assert lead.vocabulary.detokenize(tokens) == "a<|im_end|>"


async def test_a_prediction_longer_than_the_context_is_cut(lead, client):
    lead.will_say("x")
    url, ask = TEXT
    text = "a b c d " * N_CTX
    response = await client.post(url, json=ask | predict(text))
    assert response.status_code == 200
    assert lead.engine.submitted[0].prediction == lead.tokens(text)[:N_CTX]


async def test_each_of_several_prompts_gets_the_prediction(lead, client):
    lead.will_say("x")
    url, _ = TEXT
    await client.post(url, json={"prompt": ["Once", "Twice"]} | predict("upon"))
    assert [request.prediction for request in lead.engine.submitted] == [lead.tokens("upon")] * 2


@BOTH
async def test_a_prediction_changes_nothing_in_the_answer(lead, client, url, ask):
    lead.will_say("a b c")
    ask = ask | {"seed": 1}
    plain = (await client.post(url, json=ask)).json()
    predicted = (await client.post(url, json=ask | predict("a b"))).json()
    assert predicted["choices"] == plain["choices"]


@BOTH
@pytest.mark.parametrize(
    "prediction",
    [
        "once",
        3,
        [],
        {},
        {"type": "content"},
        {"content": "once"},
        {"type": "text", "content": "once"},
        {"type": "content", "content": 3},
        {"type": "content", "content": None},
        {"type": "content", "content": ["once"]},
        {"type": "content", "content": [{"type": "image_url", "text": "once"}]},
        {"type": "content", "content": [{"type": "text"}]},
    ],
)
async def test_a_prediction_of_another_shape_is_400(lead, client, url, ask, prediction):
    response = await client.post(url, json=ask | {"prediction": prediction})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "prediction")
    assert lead.engine.submitted == []
