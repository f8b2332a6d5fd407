import ctypes
from types import SimpleNamespace

import pytest

from lead.engine.draft_loading import (
    InlineModel,
    choose_threads,
    load_draft_model,
    place_draft_model,
)
from lead.engine.load import Load, LoadDraft
from shared.llama import devices
from shared.llama.model import Model
from shared.llama.placement import Device
from shared.llama.span import Span
from shared.memory.plan_memory import plan_memory
from shared.model_files.builtin import builtin_draft, builtin_target
from shared.sampling.factory import make_sampler
from shared.sampling.grammar_budget import GrammarBudget
from shared.sampling.parameters import SamplingParameters
from shared.settings.model_options import ModelOptions
from shared.step_cost import StepCost
from tests.lead.engine.drafters.by_name import ByName
from tests.shuffled_model import write_shuffled
from tests.tiny_eagle import write_tiny_eagle

OPTIONS = ModelOptions(ctx_size=512, parallel=2, batch_size=64, ubatch_size=64, threads=1, swa_full=True)
GREEDY = SamplingParameters(seed=0, temperature=0, ignore_eos=True)
SAMPLED = SamplingParameters(seed=5, repeat_penalty=1.2, repeat_last_n=16, ignore_eos=True)
PROMPT = [300, 12, 77, 1000, 5]


@pytest.fixture(scope="module")
def target():
    model = Model(plan_memory(builtin_target(), OPTIONS))
    yield model
    model.close()


def load(path, n_max=8, **options):
    return LoadDraft(model=path, options=OPTIONS.model_copy(update=options), n_max=n_max)


class NoGrammars:
    def follow(self, text, *, is_optional=False):
        raise AssertionError((text, is_optional))


def reference(path, sampling, n, prompt=PROMPT):
    """A plain loop that decodes and chooses each draft token separately."""
    model, tokens = Model(plan_memory(path, OPTIONS)), list(prompt)
    sampler = make_sampler(sampling, model.vocabulary, tokens)
    (rows,) = model.decode([Span(0, 0, tokens, 1)])
    for _ in range(n):
        tokens.append(sampler.choose(rows[0], len(tokens)))
        sampler.accept(tokens[-1])
        (rows,) = model.decode([Span(0, len(tokens) - 1, tokens[-1:], 1)])
    model.close()
    return tokens[len(prompt) :]


def drafted(drafter, sampling, n, tokens=PROMPT):
    drafter.open("s", sampling, list(tokens))
    for _ in range(n):
        done = drafter.draft(["s"], 64)
    drafter.leave("s")
    return done.drafts["s"][0]


def drafted_with(path, target, sampling, n, prompt=PROMPT):
    inline = load_draft_model(load(path), target)
    tokens = drafted(ByName(inline.drafter(NoGrammars(), GrammarBudget())), sampling, n, prompt)
    inline.model.close()
    return tokens


@pytest.mark.parametrize("architecture", ["gemma3", "qwen35", "mamba2"])
def test_models_of_every_memory_can_draft(tiny_model, architecture):
    path = tiny_model(architecture)
    with_memory = Model(plan_memory(path, OPTIONS))
    inline = load_draft_model(load(path), with_memory)
    drafter = ByName(inline.drafter(NoGrammars(), GrammarBudget()))
    expected = reference(path, GREEDY, 6)
    assert drafted(drafter, GREEDY, 6) == expected
    assert drafted(drafter, GREEDY, 3, [*PROMPT, *expected[:3]]) == expected[3:]
    inline.model.close()
    with_memory.close()


def test_the_context_is_that_of_the_target(target):
    model = load_draft_model(load(builtin_draft(), ctx_size=0), target).model
    assert model.n_ctx == target.n_ctx
    model.close()


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_draft_is_what_the_draft_model_writes(target, sampling):
    assert drafted_with(builtin_draft(), target, sampling, 8) == reference(builtin_draft(), sampling, 8)


def test_what_the_draft_model_keeps_of_earlier_texts_is_logged(target, caplog):
    caplog.set_level("INFO")
    drafted_with(builtin_draft(), target, GREEDY, 1)
    assert "prompt cache of the draft model: up to" in caplog.text


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_with_another_vocabulary_it_is_translated(target, sampling, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("shared.translation.stored_pair.user_cache_path", lambda _name: tmp_path)
    shuffled = write_shuffled(tmp_path / "shuffled.gguf")
    prompt = target.vocabulary.tokenize("Once upon a time, a fox", add_special=False, parse_special=False)
    found = drafted_with(shuffled, target, sampling, 6, prompt)
    assert found == reference(builtin_draft(), sampling, 6, prompt)
    assert "have different tokenizers" in caplog.text


class Timed:
    """A model. The duration of its steps is set for each number of threads."""

    n_batch, n_vocab, is_offloaded = 64, 4096, False

    def __init__(self, **seconds):
        self.seconds = {int(name[1:]): each for name, each in seconds.items()}
        self.threads = max(self.seconds)
        self.now = 0.0
        self.batch_sizes = []

    def use_threads(self, n_threads):
        self.threads = n_threads

    def decode(self, spans):
        self.batch_sizes.append(len(spans[0].tokens))
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
    assert model.batch_sizes == []


def calibrate(model, cost):
    InlineModel(None, SimpleNamespace(model=model)).calibrate(cost, model.clock)


def test_the_price_of_a_token_is_known_before_the_first_request():
    model, cost = Timed(_1=0.002), StepCost()
    calibrate(model, cost)
    assert cost.seconds(1) == pytest.approx(0.002)
    assert cost.seconds(32) == pytest.approx(0.064)
    assert max(model.batch_sizes) <= model.n_batch


def test_for_a_slow_model_it_is_measured_with_few_tokens():
    model = Timed(_1=1.0)
    calibrate(model, StepCost())
    assert max(model.batch_sizes) == 1


# Its place, which is chosen before the target's


@pytest.fixture
def _gpu(monkeypatch):
    """Pretend that there is a GPU with a gigabyte free. llama.cpp computes nothing on it."""
    device = Device("GPU0", "a GPU", free=1 << 30, total=1 << 30)
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    monkeypatch.setattr(devices, "chosen", lambda options: [] if options.n_gpu_layers == 0 else [1])
    monkeypatch.setattr(devices, "array", lambda _: (ctypes.c_void_p * 1)(None))
    monkeypatch.setattr(devices, "describe", lambda found: [device] if found else [])
    monkeypatch.setattr(devices, "buffer_names", lambda _: {})


on_a_gpu = pytest.mark.usefixtures("_gpu")


def place(draft=None, target=OPTIONS, **options):
    draft = draft or load(builtin_draft(), ctx_size=0, **options)
    return place_draft_model(Load(model=builtin_target(), options=target, draft=draft))


@on_a_gpu
def test_the_target_is_told_what_the_draft_model_takes():
    placed = place()
    assert (placed.draft.options.n_gpu_layers, placed.draft.options.ctx_size) == (3, 0), "as it was asked"
    size = builtin_draft().stat().st_size
    assert size / 2 < placed.taken["GPU0"] < 4 * size
    assert placed.taken["CPU"] > 0


@on_a_gpu
def test_it_takes_as_much_as_the_context_that_the_target_will_have(vocabulary):
    by_default = OPTIONS.model_copy(update={"ctx_size": 0})
    stated = OPTIONS.model_copy(update={"ctx_size": vocabulary.info.n_ctx_train * OPTIONS.parallel})
    assert place(target=by_default).taken == place(target=stated).taken


@on_a_gpu
def test_on_the_cpu_it_takes_nothing_of_the_gpu():
    assert place(n_gpu_layers=0).taken.keys() == {"CPU"}


def test_without_a_gpu_its_weights_are_on_the_cpu():
    placed = place()
    assert placed.taken == {"CPU": builtin_draft().stat().st_size}
    assert placed.draft.options.n_gpu_layers == -1


@on_a_gpu
def test_without_a_draft_model_nothing_is_placed():
    alone = Load(model=builtin_target(), options=OPTIONS)
    assert place_draft_model(alone) is alone


@on_a_gpu
def test_heads_in_a_file_of_their_own_are_counted_by_its_size(tmp_path):
    eagle = write_tiny_eagle(tmp_path / "eagle.gguf")
    assert place(load(eagle)).taken == {"GPU0": eagle.stat().st_size}
