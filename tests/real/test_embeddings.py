import httpx
import pytest

from lab.parts.processes import start_lead
from tests.minilm import tiny_bert
from tests.real.client import TIMEOUT_S, ask
from tests.real.processes import LEAD

pytestmark = pytest.mark.real


def test_vectors_are_made_beside_answers(tmp_path, target):
    model = tiny_bert(tmp_path / "bert.gguf", ["hello", "fox"])
    lead, url = start_lead("--model", str(target), "--embedding-model", str(model), *LEAD)
    with lead, httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False) as client:
        lead.wait_for("embeddings INFO: ready")
        reply = client.post("/v1/embeddings", json={"input": ["hello", "fox"] * 500})
        assert len(reply.json()["data"]) == 1000
        assert ask(url, max_tokens=4).done
        assert client.post("/v1/rerank", json={"query": "a", "documents": ["b"]}).status_code == 501


def test_a_model_that_continues_texts_makes_vectors_of_its_own(target):
    lead, url = start_lead("--model", str(target), "--serve-embeddings", *LEAD)
    with lead, httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        lead.wait_for("embeddings INFO: ready")
        reply = client.post("/v1/embeddings", json={"input": ["Once upon a time", "Once " * 100]})
        assert len(reply.json()["data"]) == 2
        assert ask(url, max_tokens=4).done
