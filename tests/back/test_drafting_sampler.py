import numpy as np

from back.drafting_sampler import drafting_sampler
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_draft
from shared.sampling.parameters import SamplingParameters


def choice(grammar):
    vocabulary = Vocabulary.load(builtin_draft())
    parameters = SamplingParameters(seed=1, temperature=0, grammar=grammar)
    logits = np.zeros(vocabulary.n_tokens, np.float32)
    (likeliest,) = vocabulary.tokenize("b", add_special=False, parse_special=False)
    logits[likeliest] = 1
    return vocabulary.detokenize([drafting_sampler(vocabulary, parameters, []).choose(logits, 0)])


def test_drafts_follow_the_grammar():
    assert choice('start: "a"') == "a"


def test_with_a_grammar_that_cannot_be_compiled_it_drafts_without():
    assert choice("start: (") == "b"


def test_dry_looks_back_a_little_way_only():
    vocabulary = Vocabulary.load(builtin_draft())
    parameters = SamplingParameters(seed=1, dry_multiplier=1)
    assert drafting_sampler(vocabulary, parameters, [])._n_remembered == 1024
