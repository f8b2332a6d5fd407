"""Real draft models in the engine: what they draft, how they are loaded, which are refused."""

import ctypes
from types import SimpleNamespace

import pytest

from lead.engine import draft_loading as module
from lead.engine.draft_loading import (
    InlineModel,
    InlineMtp,
    choose_threads,
    heads_file,
    load_draft_model,
    place_draft_model,
    wants_heads,
)
from lead.engine.engine import Engine
from lead.engine.engine_limits import EngineLimits
from lead.engine.events import Committed
from lead.engine.load import Load, LoadDraft
from lead.engine.loop import Loop
from lead.engine.speculation.batching import batching_for
from lead.engine.speculation.manager import SpeculationManager
from shared.cache_edits import Snapshot
from shared.errors import ModelLoadError
from shared.llama import devices
from shared.llama.model import Model
from shared.llama.placement import Device
from shared.llama.span import MtpSpan, Span
from shared.models.builtin import builtin_draft, builtin_target
from shared.sampling.factory import make_sampler
from shared.sampling.grammar_budget import GrammarBudget
from shared.sampling.parameters import SamplingParameters
from shared.settings.model_options import ModelOptions
from shared.step_cost import StepCost
from tests.conftest import more
from tests.fakes import FakeFront, submit
from tests.lead.engine.drafters.by_name import ByName
from tests.shuffled_model import write_shuffled
from tests.tiny_eagle import write_tiny_eagle

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


def reference(path, sampling, n, prompt=PROMPT):
    """A plain loop: each draft token is decoded and chosen by itself."""
    model, tokens = Model(path, OPTIONS), list(prompt)
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
    given = load(path)
    inline = load_draft_model(given, target)
    tokens = drafted(ByName(inline.drafter(NoGrammars(), GrammarBudget())), sampling, n, prompt)
    inline.model.close()
    return tokens


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
    assert "has another tokenizer" in caplog.text


@pytest.mark.parametrize("architecture", ["gemma3", "qwen35", "mamba2"])
def test_models_of_every_memory_can_draft(tiny_model, architecture):
    path = tiny_model(architecture)
    with_memory = Model(path, OPTIONS)
    given = load(path)
    inline = load_draft_model(given, with_memory)
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


class Timed:
    """A model whose steps take as long as a test says, by the number of threads."""

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


# The heads of the target (MTP)


@pytest.fixture(params=["qwen35", more("qwen3next"), more("glm4moe")])
def with_heads(request, tiny_with_heads):
    """A tiny random model that has a head."""
    return tiny_with_heads(request.param)


def served(path, policy, *, with_heads, n_texts=3, eagle=None, n_ctx=200, n_keep=None):
    """(texts, engine, events): what an engine writes for some prompts, at the same time."""
    model = Model(path, OPTIONS.model_copy(update={"parallel": 2}), with_heads=with_heads)
    limits = EngineLimits(
        n_slots=2, n_ctx=model.n_ctx, n_ctx_sequence=n_ctx, n_batch=model.n_batch, traits=model.traits
    )
    heads = model.open_heads(eagle) if with_heads or eagle else None
    source = InlineMtp(model, heads, 4, 2) if heads else None
    drafter = source.drafter(NoGrammars(), GrammarBudget()) if source else None
    speculation = SpeculationManager(policy, 3, frozenset(), batching=batching_for(limits), inline=drafter)
    engine = Engine(
        limits,
        speculation,
        lambda request: make_sampler(request.sampling, model.vocabulary, request.tokens),
        frozenset(),
    )
    requests = [
        submit(f"s{i}", [*PROMPT, 40 + i], GREEDY if i % 2 else SAMPLED, max_tokens=24).model_copy(
            update={"n_keep": n_keep}
        )
        for i in range(n_texts)
    ]
    front = FakeFront({0: requests[:2], 9: requests[2:]}, n_most_steps=9000)
    loop = Loop(model, engine, front, clock=front.clock)
    if source:
        source.calibrate(speculation.inline.cost, front.clock)
    while front.open:
        loop.step()
        engine.check_integrity()
    if heads:
        heads.close()
    model.close()
    return front.texts, speculation, front.of(Committed)


@pytest.mark.parametrize("policy", ["fixed", "sync"])
def test_with_heads_the_texts_are_those_of_the_target_alone(with_heads, policy):
    plain, *_ = served(with_heads, "off", with_heads=False)
    texts, speculation, _ = served(with_heads, policy, with_heads=True)
    assert texts == plain
    assert speculation.stats.draft_seconds > 0
    assert "mtp" in speculation.forecast.sources


def test_heads_go_on_drafting_after_a_context_shift(with_heads):
    plain, *_ = served(with_heads, "off", with_heads=False, n_ctx=16, n_keep=3)
    texts, _, steps = served(with_heads, "sync", with_heads=True, n_ctx=16, n_keep=3)
    assert texts == plain
    assert {"mtp"} == {source for step in steps if step.start > 24 for source in step.sources}


def check_drafts(model, heads, plain):
    """What `heads` draft is what `plain(tokens, n)` does, also after a rejection."""
    drafter = ByName(InlineMtp(model, heads, 8, 2).drafter(NoGrammars(), GrammarBudget()))
    (rows,) = model.decode([Span(1, 0, PROMPT, 1)])
    tokens = list(PROMPT)
    drafter.open("s", GREEDY, tokens)
    drafter.place("s", 1, tokens)
    tokens.append(int(rows[0].argmax()))
    for _ in range(4):
        done = drafter.draft(["s"], 64)
    expected = plain(tokens, 4)
    assert done.drafts["s"][0] == expected
    accept_one(model, [tokens[-1], *expected])
    tokens += [expected[0], 77]
    for _ in range(3):
        done = drafter.draft(["s"], 64)
    assert done.drafts["s"][0] == plain(tokens, 3)
    heads.close()
    model.close()


def test_the_drafts_of_heads_are_those_of_a_plain_loop(with_heads):
    model = Model(with_heads, OPTIONS, with_heads=True)
    check_drafts(model, model.open_heads(), lambda tokens, n: plain_loop(model, tokens, n))


def accept_one(model, tokens):
    """The target takes the first draft token (the draft is `tokens[1:]`) and rejects the rest."""
    n = len(PROMPT)
    if model.traits.replays:
        before = Snapshot("device", model.traits.n_step_checkpoints, n)
        model.store(1, before)
    model.decode([Span(1, n, tokens, len(tokens))])
    if model.traits.replays:
        model.restore(1, before, n)
        model.decode([Span(1, n, tokens[:2], 1)])
    else:
        model.trim(1, n + 2)


def plain_loop(model, tokens, n):
    """A new head reads the whole text with the target's states, then its own draft."""
    heads = model.open_heads()
    vocabulary, drafted = model.vocabulary, []
    sampler = make_sampler(GREEDY, vocabulary, tokens)
    rows = [model.hidden.nothing, *(model.hidden.state(1, i) for i in range(len(tokens) - 1))]
    (output,) = heads.decode([MtpSpan(0, 0, tokens, rows)])
    for i in range(n):
        drafted.append(sampler.choose(output.logits, len(tokens) + i))
        (output,) = heads.decode([MtpSpan(0, len(tokens) + i, drafted[-1:], [output.state.copy()])])
    heads.close()
    return drafted


def test_heads_are_used_where_a_file_has_them(with_heads):
    plain = Load(model=builtin_target(), options=OPTIONS, depth=4)
    assert wants_heads(plain.model_copy(update={"model": with_heads, "mtp": "auto"}))
    assert not wants_heads(plain.model_copy(update={"model": with_heads, "mtp": "off"}))
    assert not wants_heads(plain.model_copy(update={"mtp": "auto"}))
    with pytest.raises(ModelLoadError, match="has no heads"):
        wants_heads(plain.model_copy(update={"mtp": "on"}))


def test_beside_a_draft_model_heads_stay_idle(with_heads):
    given = Load(model=with_heads, options=OPTIONS, depth=4, mtp="auto", draft=load(builtin_draft()))
    assert not wants_heads(given)


def test_a_file_of_heads_named_as_draft_model_makes_the_target_keep_its_states(with_heads, monkeypatch):
    monkeypatch.setattr(module, "is_heads_file", lambda path: path == with_heads)
    given = Load(model=builtin_target(), options=OPTIONS, depth=4, draft=load(with_heads))
    assert heads_file(given) == with_heads
    assert wants_heads(given)
    assert heads_file(given.model_copy(update={"draft": load(builtin_draft())})) is None


@pytest.fixture(scope="module")
def eagle(tmp_path_factory):
    """A tiny random EAGLE-3 drafter, which knows a part of the vocabulary."""
    return write_tiny_eagle(tmp_path_factory.mktemp("eagle") / "eagle.gguf", n_known=1000)


@pytest.mark.parametrize("architecture", ["llama", "qwen35", "gpt-oss"])
def test_with_an_eagle_drafter_the_texts_are_those_of_the_target_alone(tiny_model, eagle, architecture):
    path = tiny_model(architecture)
    plain, *_ = served(path, "off", with_heads=False)
    texts, speculation, _ = served(path, "fixed", with_heads=False, eagle=eagle)
    assert texts == plain
    assert speculation.stats.draft_seconds > 0
    assert speculation.forecast.sources == ["draft_model"]


def test_the_drafts_of_an_eagle_drafter_are_those_of_a_plain_loop(tiny_model, eagle):
    model = Model(tiny_model("llama"), OPTIONS)
    check_drafts(model, model.open_heads(eagle), lambda tokens, n: eagle_loop(model, eagle, tokens, n))


def eagle_loop(model, eagle, tokens, n):
    """A new drafter reads the text from its second token on, then its own draft."""
    kept, heads = model.hidden, model.open_heads(eagle)
    model.hidden = kept
    rows, drafted = [kept.state(1, i) for i in range(len(tokens) - 1)], []
    (output,) = heads.decode([MtpSpan(0, 1, tokens[1:], rows)])
    for i in range(n):
        drafted.append(int(output.logits.argmax()))
        (output,) = heads.decode([MtpSpan(0, len(tokens) + i, drafted[-1:], [output.state.copy()])])
    heads.close()
    return drafted


def test_an_eagle_drafter_named_as_draft_model_needs_no_heads_of_the_target(eagle):
    given = Load(model=builtin_target(), options=OPTIONS, depth=4, draft=load(eagle))
    assert heads_file(given) == eagle
    assert not wants_heads(given)


# Its place, which is chosen before the target's


@pytest.fixture
def gpu(monkeypatch):
    """One with so many bytes free, on which llama.cpp computes nothing."""

    def have(n_free):
        device = Device("GPU0", "a GPU", free=n_free, total=n_free)
        monkeypatch.setattr(devices, "has_gpu", lambda: True)
        monkeypatch.setattr(devices, "chosen", lambda options: [] if options.n_gpu_layers == 0 else [1])
        monkeypatch.setattr(devices, "array", lambda _: (ctypes.c_void_p * 1)(None))
        monkeypatch.setattr(devices, "describe", lambda found: [device] if found else [])
        monkeypatch.setattr(devices, "buffer_names", lambda _: {})

    return have


def place(draft=None, target=OPTIONS, **options):
    draft = draft or load(builtin_draft(), ctx_size=0, **options)
    return place_draft_model(Load(model=builtin_target(), options=target, draft=draft))


def test_the_target_is_told_what_the_draft_model_takes(gpu):
    gpu(1 << 30)
    placed = place()
    assert placed.draft.options.n_gpu_layers == 3
    size = builtin_draft().stat().st_size
    assert size / 2 < placed.taken["GPU0"] < 4 * size
    assert placed.taken["CPU"] > 0


def test_the_draft_model_has_the_context_that_it_was_asked_to_have(gpu):
    gpu(1 << 30)
    assert place().draft.options.ctx_size == 0


def test_it_takes_as_much_as_the_context_that_the_target_will_have(gpu, vocabulary):
    gpu(1 << 30)
    by_default = OPTIONS.model_copy(update={"ctx_size": 0})
    stated = OPTIONS.model_copy(update={"ctx_size": vocabulary.info.n_ctx_train * OPTIONS.parallel})
    assert place(target=by_default).taken == place(target=stated).taken


def test_on_the_cpu_it_takes_nothing_of_the_gpu(gpu):
    gpu(1 << 30)
    placed = place(n_gpu_layers=0)
    assert placed.taken.keys() == {"CPU"}


def test_without_a_gpu_its_weights_are_on_the_cpu():
    placed = place()
    assert placed.taken == {"CPU": builtin_draft().stat().st_size}
    assert placed.draft.options.n_gpu_layers == -1


def test_without_a_draft_model_nothing_is_placed(gpu):
    gpu(1 << 30)
    alone = Load(model=builtin_target(), options=OPTIONS)
    assert place_draft_model(alone) is alone


def test_heads_in_a_file_of_their_own_are_counted_by_its_size(gpu, tmp_path):
    gpu(1 << 30)
    eagle = write_tiny_eagle(tmp_path / "eagle.gguf")
    assert place(load(eagle)).taken == {"GPU0": eagle.stat().st_size}
