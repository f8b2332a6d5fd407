import numpy as np
import pytest

from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_draft
from shared.sampling.factory import drafting_sampler
from shared.sampling.parameters import SamplingParameters
from shared.sampling.remote_grammar import GrammarServer, TimeBudget


@pytest.fixture(scope="module")
def grammars():
    server = GrammarServer(builtin_draft(), TimeBudget())
    yield server
    server.close()


def choice(grammar, grammars):
    vocabulary = Vocabulary.load(builtin_draft())
    parameters = SamplingParameters(seed=1, temperature=0, grammar=grammar)
    logits = np.zeros(vocabulary.n_tokens, np.float32)
    (likeliest,) = vocabulary.tokenize("b", add_special=False, parse_special=False)
    logits[likeliest] = 1
    return vocabulary.detokenize([drafting_sampler(vocabulary, grammars, parameters, []).choose(logits, 0)])


def test_drafts_follow_the_grammar(grammars):
    assert choice('start: "a"', grammars) == "a"


def test_with_a_grammar_that_cannot_be_compiled_it_drafts_without(grammars):
    assert choice("start: (", grammars) == "b"


@pytest.mark.parametrize(
    "given",
    [{"dry_multiplier": 1}, {"repeat_last_n": 60_000, "repeat_penalty": 1.1}],
    ids=lambda each: next(iter(each)),
)
def test_dry_and_penalties_look_back_a_little_way_only(given, grammars):
    vocabulary = Vocabulary.load(builtin_draft())
    parameters = SamplingParameters(seed=1, **given)
    assert drafting_sampler(vocabulary, grammars, parameters, [])._n_remembered == 1024


def test_a_shorter_window_is_the_leads(grammars):
    vocabulary = Vocabulary.load(builtin_draft())
    parameters = SamplingParameters(seed=1, dry_multiplier=1, repeat_last_n=64, repeat_penalty=1.1)
    assert drafting_sampler(vocabulary, grammars, parameters, [])._parameters.penalties_window == 64
