"""Proof 1: the tokens are the plain tokens with any drafters, policy, other sequences and memory.

`tests/lead/engine/test_random_commands.py` also has clients that leave, full caches, and changes of policies
and backs.
"""

import random
from itertools import product

import pytest

from lead.engine.commands import SetBacks, Submit
from lead.engine.events import Committed
from shared.exact.batch_invariance import InvariantSizes
from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.sampling.parameters import SamplingParameters
from shared.text_store import PromptCacheSize
from tests import fake_backs as backs
from tests.shared.translation.toys import KINDS
from tests.toy_engine import (
    FakeFront,
    inline_drafter,
    local_drafters,
    make_limits,
    no_drafters,
    run_engine,
    submit,
)
from tests.toy_model import END_TOKENS, N_VOCAB, TOY_CALLS, FakeTarget, plain_run

CHAINS = {
    "silent": lambda _requests, _truth, _rng: backs.Silent(),
    "perfect": lambda _requests, truth, _rng: backs.Perfect(truth),
    "random": lambda _requests, _truth, rng: backs.Random(rng),
    "hostile": lambda _requests, truth, rng: backs.Hostile(truth, rng),
    "late": lambda _requests, truth, _rng: backs.Late(backs.Perfect(truth)),
    "reordering": lambda _requests, truth, rng: backs.Reordering(backs.Perfect(truth), rng),
    "duplicating": lambda _requests, truth, rng: backs.Duplicating(backs.Hostile(truth, rng)),
    "equal back": lambda requests, _truth, _rng: backs.RealBack(requests, blur=0.0),
    "weaker back": lambda requests, _truth, _rng: backs.RealBack(requests, blur=0.3),
    "translating back": lambda requests, _truth, rng: backs.TranslatingBack(requests, KINDS[0], rng),
    "back that translates anything": lambda requests, _truth, rng: backs.TranslatingBack(
        requests, rng.choice(KINDS[1:]), rng
    ),
    "back with a short window": lambda requests, _truth, _rng: backs.RealBack(requests, blur=0.3, n_window=7),
}
DRAFTERS = CHAINS | {
    "growing": lambda _requests, truth, _rng: backs.Growing(truth),
    "branching": lambda _requests, truth, rng: backs.Branching(truth, rng),
    "branching, reordered": lambda _requests, truth, rng: backs.Reordering(backs.Branching(truth, rng), rng),
    "thicket": lambda _requests, truth, rng: backs.Thicket(truth, rng),
    "several": lambda requests, truth, rng: backs.Several(
        backs.Growing(truth),
        backs.Random(rng),
        backs.Branching(truth, rng),
        backs.Hostile(truth, rng),
        backs.RealBack(requests, blur=0.3),
    ),
    "crowd": lambda requests, truth, rng: backs.Crowd(
        {
            **{f"perfect-{i}": backs.Perfect(truth) for i in range(2)},
            **{f"random-{i}": backs.Random(rng) for i in range(4)},
            "branching": backs.Branching(truth, rng),
            "hostile": backs.Hostile(truth, rng),
            "late": backs.Late(backs.Perfect(truth)),
            "thicket": backs.Thicket(truth, rng),
            "back": backs.RealBack(requests, blur=0.3),
        },
        rng,
    ),
}
POLICIES = ["adaptive", "sync", "off"]  # and fixed
NAMES = SetBacks(names=["perfect", "random", "growing", "branching", "back", "hostile-0", "thicket-1"])
PENALTIES = {"repeat_penalty": 1.4, "presence_penalty": 0.3, "frequency_penalty": 0.2, "repeat_last_n": 5}
DRY = {"dry_multiplier": 2.0, "dry_base": 1.5, "dry_allowed_length": 1, "dry_penalty_last_n": 30}
XTC = {"xtc_probability": 0.5, "xtc_threshold": 0.1, "top_n_sigma": 2.0, "dynatemp_range": 0.3}
SAMPLINGS = {
    "greedy": {"temperature": 0},
    "greedy with penalties": {"temperature": 0, **PENALTIES},
    "greedy with bias": {"temperature": 0, "logit_bias": {3: -4.0, 9: 2.0}, "ignore_eos": True},
    "sampled": {"temperature": 0.8},
    "sampled with penalties": {"temperature": 1.1, **PENALTIES},
    "sampled from all": {"temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0},
    "greedy with DRY": {"temperature": 0, **DRY},
    "sampled with DRY and XTC": {**DRY, **XTC},
    "sampled in another order": {
        "samplers": ("temperature", "xtc", "top_p", "penalties"),
        **XTC,
        **PENALTIES,
    },
    "greedy under a grammar": {"temperature": 0, "grammar": "toy"},
    "sampled under a grammar": {"grammar": "toy", **DRY, **XTC, **PENALTIES},
    "sampled under a grammar of calls": {"calls": TOY_CALLS, "ignore_eos": True},
}
ROOMY = make_limits(n_slots=8, n_ctx=1000, n_ctx_sequence=100, n_batch=64)
CRAMPED = make_limits(n_slots=3, n_ctx=61, n_ctx_sequence=60, n_batch=11, n_prompt_chunk=3)
STREAMS = make_limits(n_slots=4, n_ctx=240, n_ctx_sequence=60, n_batch=40, own_cells=True)
BATCH_SIZES = make_limits(
    n_slots=4,
    n_ctx=240,
    n_ctx_sequence=60,
    n_batch=40,
    own_cells=True,
    batch_sizes=InvariantSizes((2, 3), (4, 8)),
)
ONE_BY_ONE = make_limits(n_slots=1, n_ctx=59, n_ctx_sequence=60, n_batch=5)
MEMORIES = {
    "recurrent": MemoryTraits(n_rollback=0, equal_lengths=True),
    "rollback": MemoryTraits(n_rollback=3, equal_lengths=True),
    "step checkpoints": MemoryTraits(n_rollback=0, n_step_checkpoints=1, equal_lengths=True),
}
ALL_MEMORIES = {"plain": PLAIN, **MEMORIES}
ROOMS = {"roomy": ROOMY, "cramped": CRAMPED, "one by one": ONE_BY_ONE}


def every_pair(first, second, third):
    """Triples in which each pair of two values occurs. `third` must be the shortest."""
    thirds = list(third)
    return [
        (one, other, thirds[(i + j) % len(thirds)])
        for i, one in enumerate(first)
        for j, other in enumerate(second)
    ]


def test_every_pair_of_values_occurs_in_the_triples():
    triples = every_pair(CHAINS, SAMPLINGS, ROOMS)
    for values, places in (
        ((CHAINS, SAMPLINGS), (0, 1)),
        ((CHAINS, ROOMS), (0, 2)),
        ((SAMPLINGS, ROOMS), (1, 2)),
    ):
        assert {tuple(triple[place] for place in places) for triple in triples} == set(product(*values))


def requests_for(sampling: dict, rng: random.Random, n=4) -> list[Submit]:
    """Prompts with common beginnings. Some are long, and some answers have only a few tokens."""
    stem = rng.choices(range(N_VOCAB), k=40)
    requests = []
    for i in range(n):
        prompt = [*stem[: rng.choice([0, 3, 20, 38])], *rng.choices(range(N_VOCAB), k=rng.randint(1, 9))]
        given = SamplingParameters(seed=rng.randrange(1 << 40), grammar_start=len(prompt), **sampling)
        max_tokens = rng.choice([None, None, None, 1, 12])
        requests.append(Submit(sequence=f"s{i}", tokens=prompt, sampling=given, max_tokens=max_tokens))
    return requests


def with_predictions(requests, truth, rng):
    """The requests with predictions that are almost the truth."""
    predicting = []
    for request in requests:
        answer = truth[request.sequence][len(request.tokens) :]
        prediction = [rng.randrange(N_VOCAB) if rng.random() < 0.1 else token for token in answer]
        prediction[len(prediction) // 3 : len(prediction) // 2] = []
        predicting.append(request.model_copy(update={"prediction": prediction}))
    return predicting


def with_checkpoints(requests, rng):
    """The requests, with positions from which other requests may go on."""
    drawn = [rng.choice([(), (2,), (20,), (2, 38)]) for _ in requests]
    return [
        request.model_copy(update={"checkpoints": lengths})
        for request, lengths in zip(requests, drawn, strict=True)
    ]


def truth_of(requests, limits):
    return {
        request.sequence: plain_run(request, limits.n_ctx_sequence, limits.batch_sizes)
        for request in requests
    }


def texts_of(truth):
    return {sequence: tokens for sequence, (tokens, _) in truth.items()}


def reasons_of(truth):
    return {sequence: reason for sequence, (_, reason) in truth.items()}


def spread(requests, rng, maximum=12):
    """A script that submits each request at a random step."""
    script = {}
    for request in requests:
        script.setdefault(rng.randint(0, maximum), []).append(request)
    return script


def prove(requests, drafter, limits, rng, commands=None, **engine):
    """Check that each request gets its plain text and end with any drafts; return (front, target).

    commands: further commands to the engine, by step.
    """
    truth = truth_of(requests, limits)
    script = spread(requests, rng)
    for step, others in (commands or {}).items():
        script[step] = [*others, *script.get(step, [])]
    front = FakeFront(script, DRAFTERS[drafter](requests, texts_of(truth), rng))
    target = run_engine(front, limits, **engine)
    assert front.texts == texts_of(truth)
    assert front.reasons == reasons_of(truth)
    return front, target


@pytest.mark.parametrize(("drafter", "sampling", "room"), every_pair(CHAINS, SAMPLINGS, ROOMS))
def test_with_every_drafter_the_tokens_are_the_plain_ones(drafter, sampling, room):
    rng = random.Random(f"{drafter} {sampling}")
    prove(requests_for(SAMPLINGS[sampling], rng), drafter, ROOMS[room], rng)


@pytest.mark.parametrize(
    ("drafter", "policy"),
    [*product(DRAFTERS, POLICIES), *product(sorted(DRAFTERS.keys() - CHAINS.keys()), ["fixed"])],
)
def test_under_every_policy_the_tokens_are_the_plain_ones(drafter, policy):
    rng = random.Random(f"{drafter} {policy}")
    limits = rng.choice([ROOMY, CRAMPED, STREAMS, BATCH_SIZES])
    requests = requests_for(SAMPLINGS[rng.choice(sorted(SAMPLINGS))], rng)
    prove(requests, drafter, limits, rng, {0: [NAMES]}, policy=policy)


@pytest.mark.parametrize("policy", ["fixed", "adaptive"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_with_sources_in_the_lead_the_tokens_are_the_plain_ones(sampling, policy):
    rng = random.Random(f"{sampling} {policy}")
    drafter = rng.choice(["silent", "branching", "several"])
    requests = requests_for(SAMPLINGS[sampling], rng)
    requests = with_predictions(requests, texts_of(truth_of(requests, ROOMY)), rng)
    prove(requests, drafter, ROOMY, rng, policy=policy, make_drafters=local_drafters)


@pytest.mark.parametrize(
    ("sampling", "policy"), [*product(SAMPLINGS, ["fixed", "adaptive"]), ("sampled", "sync")]
)
def test_with_a_draft_model_in_the_engine_the_tokens_are_the_plain_ones(sampling, policy):
    rng = random.Random(f"{sampling} {policy}")
    limits = rng.choice([ROOMY, CRAMPED, STREAMS])
    drafter = rng.choice(["silent", "branching", "several"])
    requests = requests_for(SAMPLINGS[sampling], rng, n=12)
    inline = inline_drafter(limits.n_slots, rng.choice([0.0, 0.3, 5.0]), n_window=rng.choice([7, 40, 100]))
    prove(requests, drafter, limits, rng, policy=policy, inline=inline)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_with_every_memory_the_tokens_are_the_plain_ones(drafter, memory):
    rng = random.Random(f"{drafter} {memory}")
    limits = make_limits(
        3, 70, 60, rng.choice([9, 40]), traits=MEMORIES[memory], n_checkpoints=rng.choice([0, 2])
    )
    requests = with_checkpoints(requests_for(SAMPLINGS["sampled"], rng), rng)
    prove(requests, drafter, limits, rng, policy=rng.choice(["fixed", "adaptive"]))


def test_a_rejected_draft_is_taken_back_by_restoring_and_replaying():
    rng = random.Random(1)
    limits = make_limits(traits=MEMORIES["step checkpoints"])
    _, target = prove(requests_for(SAMPLINGS["sampled"], rng), "hostile", limits, rng)
    assert target.n_restored > 10


def test_a_prompt_that_was_read_before_goes_on_at_a_checkpoint():
    limits = make_limits(traits=MEMORIES["rollback"], n_checkpoints=2)
    prompt = [1, 2] * 20
    requests = [submit("a", [*prompt, 4, 4], max_tokens=4), submit("b", [*prompt, 5], max_tokens=4)]
    requests[0] = requests[0].model_copy(update={"checkpoints": (40,)})
    front = FakeFront({0: requests[:1], 20: requests[1:]}, backs.Silent())
    target = run_engine(front, limits)
    assert target.n_loaded == 1
    assert front.texts == texts_of(truth_of(requests, limits))


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_conversations_that_go_on_in_turns_have_the_plain_tokens(drafter):
    rng = random.Random(drafter)
    limits = make_limits(2, 150, 100, prompt_cache=PromptCacheSize(1000, 1))
    prompts = [[n, *rng.choices(range(3), k=40)] for n in range(5)]
    requests = [
        submit(f"{turn} {i}", [*prompt, *rng.choices(range(3), k=5 * turn)], max_tokens=6)
        for turn in range(3)
        for i, prompt in enumerate(prompts)
    ]
    _, target = prove(requests, drafter, limits, rng)
    assert target.n_loaded > 0


# The proofs above prove something only if drafts are taken, and refused, in them.


def run_with(drafter, *, policy="fixed", make_drafters=no_drafters, step_s=0.0):
    rng = random.Random(3)
    requests = requests_for(SAMPLINGS["sampled"], rng, n=8)
    truth = truth_of(requests, ROOMY)
    requests = with_predictions(requests, texts_of(truth), rng)
    front = FakeFront({0: [NAMES, *requests]}, DRAFTERS[drafter](requests, texts_of(truth), rng))

    class Slow(FakeTarget):
        def decode(self, spans):
            front.now += step_s
            return super().decode(spans)

    target = run_engine(front, ROOMY, make_target=Slow, policy=policy, make_drafters=make_drafters)
    return front, target


def test_beginnings_are_sometimes_copied_from_slot_to_slot():
    n_copied = 0

    class Counting(FakeTarget):
        def copy(self, source_slot, slot, n_keep):
            nonlocal n_copied
            n_copied += 1
            super().copy(source_slot, slot, n_keep)

    for limits in (ROOMY, CRAMPED):
        n_copied = 0
        requests = requests_for(SAMPLINGS["sampled"], random.Random(3), n=8)
        run_engine(
            FakeFront({0: requests}, DRAFTERS["silent"](requests, {}, None)), limits, make_target=Counting
        )
        assert n_copied > 0


def test_perfect_drafts_are_all_accepted():
    front, _ = run_with("perfect")
    assert sum(step.n_accepted for step in front.of(Committed)) > 50
    assert all(step.tokens[-1] in END_TOKENS for step in front.of(Committed) if step.rejected)


SELDOM_RIGHT = {"silent", "random", "back with a short window", "back that translates anything"}
"""Drafters that are seldom right.

A hash of a text's end says nothing about the whole text, and random tokens are not a tokenizer's tokens.
"""


@pytest.mark.parametrize("drafter", sorted(DRAFTERS.keys() - SELDOM_RIGHT))
def test_drafts_that_may_be_right_are_sometimes_accepted(drafter):
    front, _ = run_with(drafter)
    assert any(step.n_accepted > 1 for step in front.of(Committed))


@pytest.mark.parametrize(
    "drafter", ["random", "hostile", "duplicating", "branching", "thicket", "several", "weaker back"]
)
def test_wrong_drafts_are_sometimes_rejected(drafter):
    front, _ = run_with(drafter)
    assert any(step.rejected for step in front.of(Committed))


def test_predictions_are_sometimes_accepted():
    front, _ = run_with("silent", make_drafters=local_drafters)
    assert any("prediction" in step.sources[: step.n_accepted] for step in front.of(Committed))


def test_several_sources_share_one_step():
    front, _ = run_with("several")
    assert any(len(set(step.sources)) > 1 for step in front.of(Committed))


@pytest.mark.parametrize("drafter", ["perfect", "branching", "growing"])
def test_the_adaptive_policy_takes_what_is_right(drafter):
    front, _ = run_with(drafter, policy="adaptive")
    assert any(step.n_accepted > 1 for step in front.of(Committed))


@pytest.mark.parametrize("policy", ["adaptive", "sync"])
def test_waits_happen_and_end(policy):
    front, _ = run_with("growing", policy=policy, step_s=0.1)
    assert front.waits
