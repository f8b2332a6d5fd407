import pytest


async def test_text_goes_to_tokens_and_back(client):
    tokens = (await client.post("/tokenize", json={"content": "Hello fox"})).json()["tokens"]
    body = (await client.post("/detokenize", json={"tokens": tokens})).json()
    assert body == {"content": "Hello fox"}


async def test_pieces_are_text_or_the_bytes_of_what_is_none(client):
    response = await client.post("/tokenize", json={"content": "a é", "with_pieces": True})
    pieces = [token["piece"] for token in response.json()["tokens"]]
    spelled = b"".join(piece.encode() if isinstance(piece, str) else bytes(piece) for piece in pieces)
    assert spelled == "a é".encode()
    assert any(isinstance(piece, list) for piece in pieces)


@pytest.mark.parametrize(("parse", "n"), [(True, 1), (False, 6)])
async def test_control_tokens_are_read_unless_that_is_declined(client, parse, n):
    body = {"content": "<|im_end|>", "parse_special": parse}
    tokens = (await client.post("/tokenize", json=body)).json()["tokens"]
    assert (len(tokens) == 1) == (n == 1)


@pytest.mark.parametrize("tokens", [[-1], [4096], [1 << 70], ["a"], "abc", None])
async def test_tokens_that_are_none_are_400(client, tokens):
    response = await client.post("/detokenize", json={"tokens": tokens})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "tokens")


async def test_content_that_is_no_text_is_400(client):
    response = await client.post("/tokenize", json={"content": 3})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "content")


async def test_the_prompt_is_what_the_chat_would_continue(lead, client):
    lead.will_say("x")
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    prompt = (await client.post("/apply-template", json=body)).json()["prompt"]
    assert prompt.endswith("<|im_start|>assistant\n")
    await client.post("/v1/chat/completions", json=body)
    assert lead.prompt() == prompt


async def test_the_answer_need_not_be_begun(client):
    body = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": False}
    assert "assistant" not in (await client.post("/apply-template", json=body)).json()["prompt"]


async def test_messages_are_needed(client):
    response = await client.post("/apply-template", json={"messages": []})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages")


HELLO = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    ("url", "counting", "ask"),
    [
        ("/v1/chat/completions", "input_tokens", {"messages": HELLO}),
        ("/v1/messages", "count_tokens", {"messages": HELLO, "max_tokens": 9}),
        ("/v1/responses", "input_tokens", {"input": "Hello"}),
    ],
)
async def test_the_tokens_of_a_prompt_are_counted_without_an_answer(lead, client, url, counting, ask):
    lead.will_say("x")
    count = (await client.post(f"{url}/{counting}", json=ask)).json()
    assert lead.engine.submitted == []
    await client.post(url, json=ask)
    assert count["input_tokens"] == len(lead.engine.submitted[0].tokens)
