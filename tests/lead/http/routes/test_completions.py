import pytest

from tests.lead.http.event_streams import events

URL = "/v1/completions"


async def test_an_answer_has_openais_shape(lead, client):
    lead.will_say("and then")
    body = (await client.post(URL, json={"prompt": "Once"})).json()
    assert body["object"] == "text_completion"
    assert body["choices"] == [{"index": 0, "text": "and then", "logprobs": None, "finish_reason": "stop"}]


@pytest.mark.parametrize(("prompt", "n"), [([5, 6, 7], 1), ([[5, 6], [7]], 2), ([[5], "Once"], 2)])
async def test_prompts_may_be_token_ids(lead, client, prompt, n):
    lead.will_say("x")
    response = await client.post(URL, json={"prompt": prompt})
    assert response.status_code == 200
    assert len(lead.engine.submitted) == n
    assert lead.engine.submitted[0].tokens[0] == 5


@pytest.mark.parametrize("prompt", [[4096], [-1], [[1, 99999]], "", [], [""], 3, {"a": 1}, [1.5], None])
async def test_an_invalid_prompt_is_400(lead, client, prompt):
    response = await client.post(URL, json={"prompt": prompt})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "prompt")
    assert lead.engine.submitted == []


async def test_a_stream_of_several_prompts_finishes_each_once(lead, client):
    lead.will_say("a b")
    response = await client.post(URL, json={"prompt": ["Once", "Twice"], "stream": True})
    *chunks, done = events(response)
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    for index in (0, 1):
        own = [choice for choice in choices if choice["index"] == index]
        assert "".join(choice["text"] for choice in own) == "a b"
        assert [choice["finish_reason"] for choice in own if choice["finish_reason"]] == ["stop"]
    assert done == "[DONE]"


async def test_speculation_is_reported_on_request(lead, client):
    lead.will_say(("a b", {"sources": ["desk"], "n_accepted": 1}))
    body = (await client.post(URL, json={"prompt": "Once", "return_speculation": True})).json()
    assert [token["source"] for token in body["speculation"]["tokens"]] == ["desk", None]


@pytest.mark.parametrize("streamed", [False, True])
async def test_token_ids_are_told_of_each_prompt_and_answer(lead, client, streamed):
    lead.will_say("a b")
    body = {"prompt": [[5, 6], [7]], "return_token_ids": True, "stream": streamed}
    response = await client.post(URL, json=body)
    chunks = events(response)[:-1] if streamed else [response.json()]
    for index, prompt in enumerate([[5, 6], [7]]):
        own = [each for chunk in chunks for each in chunk["choices"] if each["index"] == index]
        assert [each["prompt_token_ids"] for each in own if "prompt_token_ids" in each] == [prompt]
        assert [token for each in own for token in each["token_ids"]] == lead.tokens("a b")
