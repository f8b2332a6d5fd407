import pytest

from lead.engine.events import TokenProbabilities
from tests.lead.http.event_streams import events

URL = "/completion"


async def test_an_answer_has_llama_servers_fields(lead, client):
    lead.will_say("and then")
    body = (await client.post(URL, json={"prompt": "Once", "n_predict": 9, "seed": 42})).json()
    assert (body["content"], body["stop"]) == ("and then", True)
    assert (body["stop_type"], body["stopping_word"]) == ("eos", "")
    assert (body["prompt"], body["model"], body["id_slot"], body["index"]) == ("Once", "toy", 0, 0)
    assert body["tokens_predicted"] == len(lead.tokens("and then"))
    assert body["tokens_evaluated"] == len(lead.tokens("Once"))
    assert (body["generation_settings"]["seed"], body["generation_settings"]["n_predict"]) == (42, 9)
    assert body["timings"]["predicted_n"] == body["tokens_predicted"]
    assert (body["truncated"], body["has_new_line"]) == (False, False)


async def test_the_old_name_answers_in_the_same_form(lead, client):
    lead.will_say("x")
    assert (await client.post("/completions", json={"prompt": "Once"})).json()["content"] == "x"


@pytest.mark.parametrize(("wanted", "n"), [(True, 2), (False, 0)])
async def test_token_ids_are_sent_on_request(lead, client, wanted, n):
    lead.engine.steps = [([5], {}), ([6], {})]
    body = (await client.post(URL, json={"prompt": "Once", "return_tokens": wanted})).json()
    assert body["tokens"] == [5, 6][:n]


async def test_a_stop_string_is_named(lead, client):
    lead.will_say("and then. The end")
    body = (await client.post(URL, json={"prompt": "Once", "stop": ["nope", "."]})).json()
    assert (body["content"], body["stop_type"], body["stopping_word"]) == ("and then", "word", ".")


@pytest.mark.parametrize(("n_generated", "truncated"), [(1, False), (100, True)])
async def test_a_limit_differs_from_an_end_and_a_full_context_is_reported_as_truncated(
    lead, client, n_generated, truncated
):
    lead.engine.steps = [([5] * n_generated, {})]
    lead.engine.reason = "length"
    body = (await client.post(URL, json={"prompt": [5] * 28})).json()
    assert (body["stop_type"], body["truncated"]) == ("limit", truncated)


@pytest.mark.parametrize(
    ("n_generated", "truncated", "n_cached"), [(99, False, 126), (100, False, 127), (101, True, 66)]
)
async def test_a_context_that_was_shifted_is_reported_as_truncated(
    lead, client, n_generated, truncated, n_cached
):
    lead.use(context_shift=True)
    lead.engine.steps = [([5] * n_generated, {})]
    body = (await client.post(URL, json={"prompt": [5] * 28, "n_keep": 4})).json()
    assert (body["truncated"], body["tokens_cached"]) == (truncated, n_cached)
    assert body["generation_settings"]["n_keep"] == 4


@pytest.mark.parametrize(("fields", "n_keep"), [({}, 3), ({"n_keep": 5}, 5), ({"n_keep": -1}, 28)])
async def test_a_request_says_what_a_context_shift_keeps(lead, client, fields, n_keep):
    lead.use(context_shift=True, keep=3)
    lead.will_say("x")
    await client.post(URL, json={"prompt": [5] * 28, **fields})
    assert lead.engine.submitted[0].n_keep == n_keep


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ([5, 6], [[5, 6]]),
        ([5, "Once", 6], [[5, "Once", 6]]),
        (["Once", [5, 6]], [["Once"], [5, 6]]),
        ([[5, "Once"]], [[5, "Once"]]),
        ([[5], {"prompt_string": "Once"}], [[5], ["Once"]]),
        ({"prompt_string": "Once"}, [["Once"]]),
    ],
)
async def test_a_prompt_is_text_token_ids_or_a_mixture(lead, client, prompt, tokens):
    lead.will_say("x")
    response = await client.post(URL, json={"prompt": prompt})
    assert isinstance(response.json(), list) is (len(tokens) > 1)
    expected = [
        [token for part in parts for token in (lead.tokens(part) if isinstance(part, str) else [part])]
        for parts in tokens
    ]
    assert [request.tokens for request in lead.engine.submitted] == expected


@pytest.mark.parametrize(
    "prompt",
    [
        *([], "", 3, None, [1.5], [4096], [[1, 99999]], [1, [2]], {"prompt": "x"}),
        {"prompt_string": "x", "multimodal_data": ["eA=="]},
    ],
)
async def test_an_invalid_prompt_is_400(lead, client, prompt):
    response = await client.post(URL, json={"prompt": prompt})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "prompt")
    assert lead.engine.submitted == []


async def test_only_the_fields_asked_for_are_sent(lead, client):
    lead.will_say("x")
    fields = ["content", "generation_settings/n_predict", "nope", "content/nope"]
    body = (await client.post(URL, json={"prompt": "O", "n_predict": 3, "response_fields": fields})).json()
    assert body == {"content": "x", "generation_settings/n_predict": 3}


async def test_a_grammar_is_reported_as_the_client_sent_it(lead, client):
    lead.will_say("yes")
    grammar = 'root ::= "yes" | "no"'
    body = (await client.post(URL, json={"prompt": "O", "grammar": grammar})).json()
    assert body["generation_settings"]["grammar"] == grammar


async def test_a_stream_ends_with_the_whole_answers_fields_and_without_done(lead, client):
    lead.will_say("and then")
    response = await client.post(URL, json={"prompt": "Once", "stream": True, "return_tokens": True})
    *parts, last = events(response)
    assert "".join(part["content"] for part in parts) == "and then"
    assert [token for part in parts for token in part["tokens"]] == lead.tokens("and then")
    assert [part["stop"] for part in parts] == [False] * len(parts)
    assert (last["stop"], last["content"], last["tokens"]) == (True, "", [])
    assert last["generation_settings"]["stream"] is True


async def test_a_part_of_a_stream_has_the_index_of_its_prompt(lead, client):
    lead.will_say("x")
    response = await client.post(URL, json={"prompt": ["a", "b"], "stream": True})
    assert sorted(part["index"] for part in events(response) if part["stop"]) == [0, 1]


async def test_with_probabilities_a_stream_sends_one_token_at_a_time(lead, client):
    told = TokenProbabilities(chosen=-0.5, top=[(5, -0.5)])
    lead.engine.steps = [([5, 6], {"probabilities": [told, told]})]
    response = await client.post(URL, json={"prompt": "Once", "stream": True, "n_probs": 1})
    *parts, _ = events(response)
    assert [len(part["completion_probabilities"]) for part in parts] == [1, 1]


async def test_a_stream_ends_in_mid_character_as_the_whole_answer_does(lead, client):
    lead.engine.steps = [(lead.tokens("👋")[:1], {})]
    whole = (await client.post(URL, json={"prompt": "Once"})).json()["content"]
    streamed = events(await client.post(URL, json={"prompt": "Once", "stream": True}))
    assert "".join(event["content"] for event in streamed) == whole
