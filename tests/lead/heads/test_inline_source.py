"""Heads of real (tiny, random) models, and EAGLE-3 drafters: their drafts, and when they draft."""

import functools

import pytest

from lead.engine.draft_loading import has_draft_model
from lead.engine.engine import Engine
from lead.engine.engine_limits import EngineLimits
from lead.engine.events import Committed
from lead.engine.load import Load
from lead.engine.loop import Loop
from lead.engine.speculation.manager import SpeculationManager
from lead.engine.speculation.memory_batching import batching_for
from lead.heads import inline_source
from lead.heads.inline_source import InlineMtp, plan_source
from shared.cache_edits import Snapshot
from shared.errors import ModelLoadError
from shared.heads.eagle_heads import open_eagle
from shared.heads.hidden_sources import NextnStates
from shared.heads.mtp_heads import open_heads
from shared.heads.mtp_span import MtpSpan
from shared.llama.model import Model
from shared.llama.span import Span
from shared.memory.plan_memory import plan_memory
from shared.model_files.builtin import builtin_draft, builtin_target
from shared.sampling.factory import make_sampler
from shared.sampling.grammar_budget import GrammarBudget
from tests.conftest import more
from tests.lead.engine.drafters.by_name import ByName
from tests.lead.engine.test_draft_loading import GREEDY, OPTIONS, PROMPT, SAMPLED, NoGrammars, load
from tests.tiny_eagle import write_tiny_eagle
from tests.toy_engine import FakeFront, submit


@pytest.fixture(params=["qwen35", more("qwen3next"), more("glm4moe")])
def with_heads(request, tiny_with_heads):
    """A tiny random model that has a head."""
    return tiny_with_heads(request.param)


def opened(model, eagle=None, n_max=8):
    """The heads of a model that has loaded them, or a drafter from a file."""
    heads, states = open_eagle(model, eagle) if eagle else (open_heads(model), NextnStates(model))
    return InlineMtp(model, heads, states, n_max, 2)


def served(path, policy, *, with_heads, n_texts=3, eagle=None, n_ctx=200, n_keep=None):
    """(texts, engine, events): the engine's texts for some prompts at the same time."""
    model = Model(plan_memory(path, OPTIONS.model_copy(update={"parallel": 2}), with_heads=with_heads))
    limits = EngineLimits(
        n_slots=2, n_ctx=model.n_ctx, n_ctx_sequence=n_ctx, n_batch=model.n_batch, traits=model.traits
    )
    source = opened(model, eagle, n_max=4) if with_heads or eagle else None
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
    front = FakeFront({0: requests[:2], 9: requests[2:]}, max_steps=9000)
    loop = Loop(model, engine, front, clock=front.clock)
    if source:
        source.calibrate(speculation.inline.cost, front.clock)
    while front.open:
        loop.step()
        engine.check_integrity()
    if source:
        source.heads.close()
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


def check_drafts(model, source, plain):
    """Check that drafts of `source` equal `plain(states, tokens, n)`, also after a rejection."""
    drafter = ByName(source.drafter(NoGrammars(), GrammarBudget()))
    (rows,) = model.decode([Span(1, 0, PROMPT, 1)])
    tokens = list(PROMPT)
    drafter.open("s", GREEDY, tokens)
    drafter.place("s", 1, tokens)
    tokens.append(int(rows[0].argmax()))
    for _ in range(4):
        done = drafter.draft(["s"], 64)
    expected = plain(source.states, tokens, 4)
    assert done.drafts["s"][0] == expected
    accept_one(model, [tokens[-1], *expected])
    tokens += [expected[0], 77]
    for _ in range(3):
        done = drafter.draft(["s"], 64)
    assert done.drafts["s"][0] == plain(source.states, tokens, 3)
    source.heads.close()
    model.close()


def test_the_drafts_of_heads_are_those_of_a_plain_loop(with_heads):
    model = Model(plan_memory(with_heads, OPTIONS, with_heads=True))
    check_drafts(model, opened(model), functools.partial(plain_loop, model))


def accept_one(model, tokens):
    """Let the target accept the first draft token (the draft is `tokens[1:]`) and reject the rest."""
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


def plain_loop(model, states, tokens, n):
    """The draft of a new head that reads the whole text with the target's states, then its own draft."""
    heads = open_heads(model)
    vocabulary, drafted = model.vocabulary, []
    sampler = make_sampler(GREEDY, vocabulary, tokens)
    rows = [states.nothing, *(states.state(1, i) for i in range(len(tokens) - 1))]
    (output,) = heads.decode([MtpSpan(0, 0, tokens, rows)])
    for i in range(n):
        drafted.append(sampler.choose(output.logits, len(tokens) + i))
        (output,) = heads.decode([MtpSpan(0, len(tokens) + i, drafted[-1:], [output.state.copy()])])
    heads.close()
    return drafted


def test_heads_are_used_where_a_file_has_them(with_heads):
    plain = Load(model=builtin_target(), options=OPTIONS, depth=4)
    assert plan_source(plain.model_copy(update={"model": with_heads, "mtp": "auto"})).load_mtp
    assert not plan_source(plain.model_copy(update={"model": with_heads, "mtp": "off"}))
    assert not plan_source(plain.model_copy(update={"mtp": "auto"}))
    with pytest.raises(ModelLoadError, match="has no usable MTP heads"):
        plan_source(plain.model_copy(update={"mtp": "on"}))


def test_beside_a_draft_model_heads_stay_idle(with_heads):
    given = Load(model=with_heads, options=OPTIONS, depth=4, mtp="auto", draft=load(builtin_draft()))
    assert not plan_source(given)
    assert has_draft_model(given)


def test_a_file_of_heads_named_as_draft_model_makes_the_target_keep_its_states(with_heads, monkeypatch):
    monkeypatch.setattr(inline_source, "is_heads_file", lambda path: path == with_heads)
    given = Load(model=builtin_target(), options=OPTIONS, depth=4, draft=load(with_heads))
    planned = plan_source(given)
    assert (planned.is_draft_model, planned.load_mtp) == (True, False)
    assert not has_draft_model(given)


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
    model = Model(plan_memory(tiny_model("llama"), OPTIONS))
    check_drafts(model, opened(model, eagle), functools.partial(eagle_loop, model, eagle))


def eagle_loop(model, eagle, states, tokens, n):
    """The draft of a new drafter that reads the text from its second token on, then its own draft."""
    heads, _ = open_eagle(model, eagle)
    rows, drafted = [states.state(1, i) for i in range(len(tokens) - 1)], []
    (output,) = heads.decode([MtpSpan(0, 1, tokens[1:], rows)])
    for i in range(n):
        drafted.append(int(output.logits.argmax()))
        (output,) = heads.decode([MtpSpan(0, len(tokens) + i, drafted[-1:], [output.state.copy()])])
    heads.close()
    return drafted


def test_an_eagle_drafter_named_as_draft_model_needs_no_heads_of_the_target(eagle):
    planned = plan_source(Load(model=builtin_target(), options=OPTIONS, depth=4, draft=load(eagle)))
    assert (planned.is_draft_model, planned.load_mtp) == (True, False)
