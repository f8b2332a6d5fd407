"""Vectors and ranks in the formats of the APIs."""

import base64
from array import array
from pathlib import Path

import pytest

from lead.embeddings.encoder_messages import EncoderReady, LoadEncoder, Together
from lead.embeddings.vector_model import VectorModel, VectorModels
from lead.engine_client.engine_state import EngineState
from lead.settings.lead_settings import LeadSettings
from lead.tokenizer.jobs import PreparedRequest
from shared.errors import RequestError


class FakeEncoder:
    """A vector is the first token, the number of tokens, and zeros. A score is the number of tokens."""

    state = EngineState.READY

    def __init__(self, *, ranks=False):
        self.ready = EncoderReady("tiny", ranks, 1 if ranks else 4, 8, 512, Together(63, 64))
        self.texts = []

    async def encode(self, _client, texts):
        self.texts += texts
        if self.ready.ranks:
            return [array("f", [len(text.tokens)]).tobytes() for text in texts]
        vectors = ([text.tokens[0], len(text.tokens), 0, 0] for text in texts)
        return [
            array("f", vector[: text.n_dimensions or 4]).tobytes()
            for vector, text in zip(vectors, texts, strict=True)
        ]


class FakeTokenizer:
    """Makes a token of each word: the number of its characters."""

    async def run(self, _client, _method, prompts):
        return PreparedRequest([self._tokens(prompt) for prompt in prompts])

    def _tokens(self, prompt):
        if isinstance(prompt, list):
            if max(prompt, default=0) > 100:
                raise RequestError("prompt: token is not in the vocabulary", "prompt")
            return array("i", prompt)
        text = prompt if isinstance(prompt, str) else f"{prompt.query} {prompt.document}"
        return array("i", [len(word) for word in text.split()] + [99])


def model(*, ranks=False):
    made = VectorModel(LoadEncoder(Path("tiny.gguf"), 1), LeadSettings())
    made.encoder, made._tokenizer = FakeEncoder(ranks=ranks), FakeTokenizer()
    made._description, made._end, made._name = object(), array("i", [99]), "tiny"
    return made


@pytest.fixture
def models(lead, monkeypatch):
    made = VectorModels(model(), model(ranks=True))
    monkeypatch.setattr(lead.app.state, "vector_models", made, raising=False)
    return made


pytestmark = pytest.mark.usefixtures("models")


async def ask(client, path="/v1/embeddings", status=200, **body):
    response = await client.post(path, json=body)
    assert response.status_code == status, response.text
    return response.json()


async def test_a_text_has_a_vector(client):
    assert await ask(client, input="one three", model="any") == {
        "object": "list",
        "model": "any",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
        "data": [{"object": "embedding", "index": 0, "embedding": [3.0, 3.0, 0.0, 0.0]}],
    }


@pytest.mark.parametrize(
    ("given", "firsts"),
    [(["one", "three"], [3, 5]), ([7, 8], [7]), ([[7, 8], [9]], [7, 9]), (["one", [9]], [3, 9]), ("", [99])],
)
async def test_texts_may_be_given_as_tokens(client, given, firsts):
    records = (await ask(client, input=given))["data"]
    assert [record["embedding"][0] for record in records] == firsts


async def test_numbers_may_be_written_in_base64(client):
    (record,) = (await ask(client, input="one", encoding_format="base64"))["data"]
    assert array("f", base64.b64decode(record["embedding"])).tolist() == [3, 2, 0, 0]


async def test_a_vector_may_be_cut(client):
    (record,) = (await ask(client, input="one", dimensions=2))["data"]
    assert record["embedding"] == [3, 2]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": 1}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": "one", "dimensions": 5}, "dimensions"),
        ({"input": "one", "dimensions": -1}, "dimensions"),
        ({"input": "one", "encoding_format": "int8"}, "encoding_format"),
        ({"input": ["one", "x " * 8]}, "input"),
        ({"input": [101]}, "input"),
    ],
)
async def test_what_has_no_vector_is_refused_by_name(client, body, param):
    error = (await ask(client, status=400, **body))["error"]
    assert error["param"] == param


async def test_a_text_that_is_too_long_is_named(client):
    error = (await ask(client, status=400, input=["one", "x " * 8]))["error"]
    assert error["message"] == "input.1: this text has 9 tokens. tiny accepts at most 8"
    assert error["code"] == "context_length_exceeded"


async def test_too_many_texts_are_refused_with_how_many_may_be(client):
    error = (await ask(client, status=400, input=["a"] * 4097))["error"]
    assert (error["param"], "4096" in error["message"]) == ("input", True)


async def test_ollama_cuts_texts_unless_told_otherwise(client, models):
    body = await ask(client, "/api/embed", model="any", input=["one", "x " * 20])
    assert [len(each) for each in body["embeddings"]] == [4, 4]
    assert body["prompt_eval_count"] == 10
    assert models.embedder.encoder.texts[-1].tokens[-1] == 99
    refused = await ask(client, "/api/embed", 400, input="x " * 20, truncate=False)
    assert "20" in refused["error"] or "21" in refused["error"]


async def test_ollama_has_an_older_form_too(client, models):
    assert await ask(client, "/api/embeddings", prompt="one") == {"embedding": [3, 2, 0, 0]}
    assert models.embedder.encoder.texts[-1].norm == -1


@pytest.mark.parametrize("path", ["/embedding", "/embeddings"])
async def test_llama_servers_own_form(client, path):
    assert await ask(client, path, content=["one"]) == [{"index": 0, "embedding": [[3, 2, 0, 0]]}]


@pytest.mark.parametrize("path", ["/rerank", "/reranking", "/v1/rerank", "/v1/reranking", "/v2/rerank"])
async def test_texts_are_ranked_the_best_first(client, path):
    body = await ask(client, path, query="q", documents=["a", "a b c", {"text": "a b"}], top_n=2)
    assert body["results"] == [{"index": 1, "relevance_score": 5}, {"index": 2, "relevance_score": 4}]
    assert body["usage"]["total_tokens"] == 12


async def test_ranked_texts_may_be_returned(client):
    body = await ask(client, "/v1/rerank", query="q", documents=["a"], return_documents=True)
    assert body["results"] == [{"index": 0, "relevance_score": 3, "document": {"text": "a"}}]


async def test_ranks_in_the_form_of_text_embeddings_inference(client):
    body = await ask(client, "/rerank", query="q", texts=["a", "a b"], return_text=True)
    assert body == [{"index": 1, "score": 4, "text": "a b"}, {"index": 0, "score": 3, "text": "a"}]


@pytest.mark.parametrize("body", [{"query": "q"}, {"query": "q", "documents": []}, {"documents": ["a"]}])
async def test_nothing_to_rank_is_refused(client, body):
    assert (await ask(client, "/v1/rerank", 400, **body))["error"]["param"] in {"documents", "query"}


async def test_without_a_model_it_is_501_with_a_reason(lead, client):
    lead.app.state.vector_models = None
    for path, body in {
        "/v1/embeddings": {"input": "a"},
        "/v1/rerank": {"query": "q", "documents": ["a"]},
    }.items():
        assert "Start it with" in (await ask(client, path, 501, **body))["error"]["message"]


async def test_what_was_computed_is_counted(client, models):
    await ask(client, input=["one", "two three"])
    assert (models.embedder.n_texts, models.embedder.n_tokens) == (2, 5)
