from array import array

import pytest

from lead.embeddings.embedding_requests import RankedPair
from lead.embeddings.vector_model import VectorModels, VectorOptions
from lead.settings.lead_settings import LeadSettings
from lead.tokenizer.fair_queue import Client
from shared.errors import NotServingError, RequestError

CLIENT = Client("a")


async def test_texts_have_vectors_and_pairs_have_ranks(bert, ranker):
    settings = LeadSettings.from_options(embedding_model=bert, rerank_model=ranker, log_level="error")
    models = VectorModels.beside(settings)
    with pytest.raises(NotServingError):
        await models.embedder.compute(CLIENT, ["hello"], VectorOptions("input"))
    await models.start()
    try:
        hello, again = (
            await models.embedder.compute(CLIENT, ["hello fox"] * 2, VectorOptions("input"))
        ).vectors
        assert array("f", hello).tolist() == pytest.approx(array("f", again).tolist(), abs=1e-3)
        cut = await models.embedder.compute(CLIENT, ["a " * 1000], VectorOptions("input", truncates=True))
        assert cut.n_tokens == 32
        with pytest.raises(RequestError, match=r"input\.0: this text has 1002 tokens"):
            await models.embedder.compute(CLIENT, ["a " * 1000], VectorOptions("input"))
        pairs = [RankedPair("fox", text) for text in ("hello", "world")]
        scores = (await models.ranker.compute(CLIENT, pairs, VectorOptions("documents"))).vectors
        assert len(set(scores)) == 2
        assert [model.name for model in models] == ["tiny BERT", "tiny BERT"]
    finally:
        await models.end()
