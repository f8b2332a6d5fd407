"""Makes the prompt of a reranker, in a tokenizer process."""

import re
from array import array

from shared.llama.native import llama_cpp
from shared.llama.vocabulary import Vocabulary

_GAP = re.compile(r"\{(query|document)\}")


def pair_tokens(vocabulary: Vocabulary, query: str, document: str) -> "array[int]":
    """Return the tokens of a question and a text as in llama-server: from the model's own template, or with
    the special tokens that the model wants.
    """
    if template := vocabulary.template("rerank"):
        texts = {"query": query, "document": document}
        filled = _GAP.sub(lambda gap: texts[gap[1]], template)
        return vocabulary.encode(filled, add_special=False, parse_special=True)
    native = vocabulary.native
    sep = llama_cpp.llama_vocab_sep(native)
    end = (
        [sep if vocabulary.eos is None else vocabulary.eos]
        if llama_cpp.llama_vocab_get_add_eos(native)
        else []
    )
    found = array("i", [llama_cpp.llama_vocab_bos(native)] if vocabulary.adds_bos else [])
    found += vocabulary.encode(query, add_special=False, parse_special=False)
    found.extend(end)
    found.extend([sep] if llama_cpp.llama_vocab_get_add_sep(native) else [])
    found += vocabulary.encode(document, add_special=False, parse_special=False)
    found.extend(end)
    return found
