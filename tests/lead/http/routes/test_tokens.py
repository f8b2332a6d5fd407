import pytest

from lead.chat_format.template import ChatTemplate
from lead.http.generation_request import _say_that_bos_is_read_once
from shared.llama.vocabulary import Vocabulary
from tests.shared.llama.test_vocabulary import WITH_BOS, write_vocabulary


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


@pytest.mark.parametrize("parse", [True, False])
async def test_control_tokens_are_read_unless_that_is_declined(client, parse):
    body = {"content": "<|im_end|>", "parse_special": parse}
    tokens = (await client.post("/tokenize", json=body)).json()["tokens"]
    assert (len(tokens) == 1) == parse


@pytest.mark.parametrize(
    ("path", "param", "value"),
    [
        *(("/detokenize", "tokens", tokens) for tokens in ([-1], [4096], [1 << 70], ["a"], "abc", None)),
        ("/tokenize", "content", 3),
        ("/apply-template", "messages", []),
    ],
)
async def test_what_is_none_is_400(client, path, param, value):
    response = await client.post(path, json={param: value})
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


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


@pytest.fixture
def begins_with_bos(lead, tmp_path):
    """A model whose vocabulary and template both put BOS first."""
    vocabulary = Vocabulary.load(write_vocabulary(tmp_path / "model.gguf", "llama", WITH_BOS))
    lead.use(
        template=ChatTemplate("{{ bos_token }}{{ messages[0].content }}", "<s>", "</s>"),
        vocabulary=vocabulary,
    )
    return vocabulary


@pytest.mark.parametrize("content", ["Hi", "<s>Hi"])
async def test_what_the_template_wrote_is_continued_with_the_tokens_of_the_chat(
    lead, client, begins_with_bos, content
):
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
    prompt = (await client.post("/apply-template", json=body)).json()["prompt"]
    await client.post("/completion", json={"prompt": prompt, "n_predict": 1})
    await client.post("/completion", json={"prompt": [prompt], "n_predict": 1})
    await client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1})
    tokens = [submit.tokens for submit in lead.engine.submitted]
    assert [each.count(begins_with_bos.bos) for each in tokens] == [1, 1, 1]


@pytest.mark.usefixtures("begins_with_bos")
async def test_the_log_says_once_that_bos_is_not_read_twice(client, caplog):
    _say_that_bos_is_read_once.cache_clear()
    for prompt in ("Hi", "<s>Hi", "<s>Ho"):
        await client.post("/completion", json={"prompt": prompt, "n_predict": 1})
    (record,) = caplog.records
    assert record.message.startswith("a prompt begins with <s>")


async def test_the_text_of_bos_in_a_message_is_text(lead, client, begins_with_bos):
    body = {"messages": [{"role": "user", "content": "<s>Hi"}], "max_tokens": 1}
    await client.post("/v1/chat/completions", json=body)
    (submit,) = lead.engine.submitted
    assert submit.tokens.count(begins_with_bos.bos) == 1
    assert begins_with_bos.detokenize(submit.tokens[1:]).endswith("<s>Hi")


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
