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
