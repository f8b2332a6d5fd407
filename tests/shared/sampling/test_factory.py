import numpy as np
import pytest

from shared.llama.vocabulary import Vocabulary
from shared.model_files.builtin import builtin_draft
from shared.sampling.call_grammars import CallGrammars
from shared.sampling.factory import drafting_sampler
from shared.sampling.parameters import SamplingParameters
from shared.sampling.remote_grammar import GrammarServer, TimeBudget


@pytest.fixture(scope="module")
def grammars():
    server = GrammarServer(builtin_draft(), TimeBudget())
    yield server
    server.close()


def choice(grammar, grammars, said="", **given):
    """The next token after a text. Without a grammar it is "b"."""
    vocabulary = Vocabulary.load(builtin_draft())
    parameters = SamplingParameters(seed=1, temperature=0, grammar=grammar, **given)
    logits = np.zeros(vocabulary.n_tokens, np.float32)
    (likeliest,) = vocabulary.tokenize("b", add_special=False, parse_special=False)
    logits[likeliest] = 1
    history = vocabulary.tokenize(said, add_special=False, parse_special=False)
    sampler = drafting_sampler(vocabulary, grammars, parameters, history)
    return vocabulary.detokenize([sampler.choose(logits, len(history))])


def test_drafts_follow_the_grammar(grammars):
    assert choice('start: "a"', grammars) == "a"


def test_with_a_grammar_that_cannot_be_compiled_it_drafts_without(grammars):
    assert choice("start: (", grammars) == "b"


def test_a_call_that_has_begun_before_goes_on_under_its_grammar(grammars):
    calls = CallGrammars("<(?P<name>add)>", {"add": 'start: "(" "a" ")"'})
    assert choice(None, grammars, "I <add", calls=calls) == "b"
    assert choice(None, grammars, "I <add>(", calls=calls) == "a"
    assert choice(None, grammars, "I <add>(a) and ", calls=calls) == "b"


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
