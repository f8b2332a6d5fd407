"""Real draft models in the engine: what they draft, how they are loaded, which are refused."""

from types import SimpleNamespace

import pytest

from lead.engine.commands import LoadDraft
from lead.engine.draft_loading import calibrate_drafting, choose_threads, load_draft_model, make_drafter
from lead.engine.speculation.step_cost import StepCost
from shared.errors import ModelLoadError
from shared.llama.model import Model
from shared.llama.span import Span
from shared.models.builtin import builtin_draft, builtin_target
from shared.protocol import VocabularyId
from shared.sampling.factory import make_sampler
from shared.sampling.grammar_waits import NoWait
from shared.sampling.parameters import SamplingParameters
from shared.settings.model_options import ModelOptions

OPTIONS = ModelOptions(ctx_size=512, parallel=2, batch_size=64, ubatch_size=64, threads=1, swa_full=True)
GREEDY = SamplingParameters(seed=0, temperature=0, ignore_eos=True)
SAMPLED = SamplingParameters(seed=5, repeat_penalty=1.2, repeat_last_n=16, ignore_eos=True)
PROMPT = [300, 12, 77, 1000, 5]


@pytest.fixture(scope="module")
def target():
    model = Model(builtin_target(), OPTIONS)
    yield model
    model.close()


def load(path, n_most=8, **options):
    return LoadDraft(model=path, options=OPTIONS.model_copy(update=options), n_most=n_most)


class NoGrammars:
    def follow(self, text, *, is_optional=False):
        raise AssertionError((text, is_optional))


def reference(path, sampling, n):
    """A plain loop: each draft token is decoded and chosen by itself."""
    model, tokens = Model(path, OPTIONS), list(PROMPT)
    sampler = make_sampler(sampling, model.vocabulary, tokens)
    (rows,) = model.decode([Span(0, 0, tokens, 1)])
    for _ in range(n):
        tokens.append(sampler.choose(rows[0], len(tokens)))
        sampler.accept(tokens[-1])
        (rows,) = model.decode([Span(0, len(tokens) - 1, tokens[-1:], 1)])
    model.close()
    return tokens[len(PROMPT) :]


def drafted(drafter, sampling, n, tokens=PROMPT):
    drafter.open("s", sampling, list(tokens))
    for _ in range(n):
        done = drafter.draft(["s"], 64)
    drafter.close("s")
    return done.drafts["s"][0]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_draft_is_what_the_draft_model_writes(target, sampling):
    given = load(builtin_draft())
    model = load_draft_model(given, target)
    drafter = make_drafter(given, model, NoGrammars(), NoWait())
    assert drafted(drafter, sampling, 8) == reference(builtin_draft(), sampling, 8)
    model.close()


@pytest.mark.parametrize("architecture", ["gemma3", "qwen35", "mamba2"])
def test_models_of_every_memory_can_draft(tiny_model, architecture):
    path = tiny_model(architecture)
    with_memory = Model(path, OPTIONS)
    given = load(path)
    model = load_draft_model(given, with_memory)
    drafter = make_drafter(given, model, NoGrammars(), NoWait())
    expected = reference(path, GREEDY, 6)
    assert drafted(drafter, GREEDY, 6) == expected
    assert drafted(drafter, GREEDY, 3, [*PROMPT, *expected[:3]]) == expected[3:]
    model.close()
    with_memory.close()


def test_a_model_with_another_vocabulary_is_refused(target):
    other = VocabularyId(fingerprint="other", n_tokens=9, model="Other")
    target = SimpleNamespace(n_ctx=512, vocabulary=SimpleNamespace(identify=lambda: other))
    with pytest.raises(ModelLoadError, match="the target is 'Other' with 9 tokens, the draft model "):
        load_draft_model(load(builtin_draft()), target)


def test_the_context_is_that_of_the_target(target):
    model = load_draft_model(load(builtin_draft(), ctx_size=0), target)
    assert model.n_ctx == target.n_ctx
    model.close()


class Timed:
    """A model whose steps take as long as a test says, by the number of threads."""

    n_batch = 64

    def __init__(self, **seconds):
        self.seconds = {int(name[1:]): each for name, each in seconds.items()}
        self.threads = max(self.seconds)
        self.now = 0.0
        self.widths = []

    def use_threads(self, n_threads):
        self.threads = n_threads

    def decode(self, spans):
        self.widths.append(len(spans[0].tokens))
        self.now += self.seconds[self.threads] * len(spans[0].tokens)

    def trim(self, *_):
        pass

    def clock(self):
        return self.now


@pytest.mark.parametrize(("one", "four", "best"), [(0.001, 0.002, 1), (0.009, 0.003, 4)])
def test_the_faster_number_of_threads_is_used(one, four, best):
    model = Timed(_1=one, _4=four)
    assert choose_threads(load(builtin_draft(), threads=4), model, model.clock) == best
    assert model.threads == best


def test_a_number_of_threads_that_was_set_is_used():
    model = Timed(_1=0.001, _4=0.002)
    given = load(builtin_draft(), threads=4).model_copy(update={"fixed_threads": True})
    assert choose_threads(given, model, model.clock) == 4
    assert model.widths == []


def test_the_price_of_a_token_is_known_before_the_first_request():
    model, cost = Timed(_1=0.002), StepCost()
    calibrate_drafting(model, cost, model.clock)
    assert cost.seconds(1) == pytest.approx(0.002)
    assert cost.seconds(32) == pytest.approx(0.064)
    assert max(model.widths) <= model.n_batch


def test_for_a_slow_model_it_is_measured_with_few_tokens():
    model = Timed(_1=1.0)
    calibrate_drafting(model, StepCost(), model.clock)
    assert max(model.widths) == 1
