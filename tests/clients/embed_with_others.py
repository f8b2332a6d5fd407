"""Use packages for embeddings with a lead: `embed_with_others.py URL`.

Prints the names of the packages whose vectors of two texts differ from `openai`'s, and the sizes of the
vectors of all calls.
"""

import itertools
import json
import math
import sys
from collections.abc import Sequence

import ollama
import openai
from langchain_ollama import OllamaEmbeddings
from langchain_openai import OpenAIEmbeddings
from llama_index.embeddings.openai_like import OpenAILikeEmbedding

TEXTS = ["hello fox", "hello"]
KEY = {"api_key": "any"}


def are_alike(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> bool:
    pairs = zip(first, second, strict=True)
    numbers = itertools.chain.from_iterable(zip(*pair, strict=True) for pair in pairs)
    return all(math.isclose(*pair, abs_tol=1e-5) for pair in numbers)


def main() -> None:
    url = sys.argv[1]
    asked = openai.OpenAI(base_url=f"{url}/v1", **KEY).embeddings
    client = ollama.Client(host=url)
    name = client.list().models[-1].model
    packed = asked.create(model=name, input=TEXTS)  # as base64
    vectors = [each.embedding for each in packed.data]
    by_openai = OpenAIEmbeddings(base_url=f"{url}/v1", model=name, check_embedding_ctx_length=False, **KEY)
    by_ollama = OllamaEmbeddings(base_url=url, model=name, validate_model_on_init=True)
    by_index = OpenAILikeEmbedding(api_base=f"{url}/v1", model_name=name, **KEY)
    found = {
        "floats": [
            each.embedding for each in asked.create(model=name, input=TEXTS, encoding_format="float").data
        ],
        "ollama": client.embed(name, TEXTS).embeddings,
        "langchain-openai": by_openai.embed_documents(TEXTS),
        "langchain-ollama": by_ollama.embed_documents(TEXTS),
        "llama-index": by_index.get_text_embedding_batch(TEXTS),
    }
    others = [
        asked.create(model=name, input="fox", dimensions=8).data[0].embedding,
        client.embeddings(name, "fox").embedding,
        by_openai.embed_query("fox"),
        by_ollama.embed_query("fox"),
        by_index.get_query_embedding("fox"),
    ]
    said = (
        [each for each, theirs in found.items() if not are_alike(vectors, theirs)],
        list(map(len, [*vectors, *others])),
        packed.usage.total_tokens,
        client.show(name).capabilities,
    )
    sys.stdout.write("".join(json.dumps(each) + "\n" for each in said))


if __name__ == "__main__":
    main()
