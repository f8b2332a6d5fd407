"""Proofs 1 and 3 over context shifts: texts several contexts long equal the texts of a plain run.

Drafts, other sequences, other memories and the death of engine processes happen in between.
`tests/lead/engine/test_random_commands.py` has clients that leave, and full caches.
"""

import random
from itertools import cycle

import pytest

from lead.engine.events import Committed, Started
from tests.fake_backs import Perfect, Silent
from tests.test_proof_resumption import Front
from tests.test_proof_tokens import (
    ALL_MEMORIES,
    DRAFTERS,
    MEMORIES,
    SAMPLINGS,
    prove,
    requests_for,
    texts_of,
    truth_of,
    with_checkpoints,
)
from tests.toy_engine import FakeFront, local_drafters, make_limits, run_engine, submit
from tests.toy_model import END_TOKENS, FakeTarget

N_CTX = 24
_N_PROMPT = 14
_N_LONG = 2
ROOMS = {
    "roomy": make_limits(4, 4 * N_CTX, N_CTX, 40),
    "cramped": make_limits(3, N_CTX + 10, N_CTX, 9, n_prompt_chunk=3),
    "cells of their own": make_limits(3, 3 * N_CTX, N_CTX, 40, own_cells=True),
    "one by one": make_limits(1, N_CTX - 1, N_CTX, 5),
}


def endless(requests, rng, maximum=3 * N_CTX):
    """Requests whose texts become longer than the context. After the first two, some end before that."""
    shifting = []
    for i, request in enumerate(requests):
        prompt = request.tokens[:_N_PROMPT]
        update = {"grammar_start": len(prompt)}
        if i < _N_LONG or rng.random() < 0.8:
            update["logit_bias"] = dict.fromkeys(END_TOKENS, -1e9)
        more = {
            "tokens": prompt,
            "sampling": request.sampling.model_copy(update=update),
            "max_tokens": maximum if i < _N_LONG else rng.choice([rng.randint(1, maximum), maximum]),
            "n_keep": rng.choice([0, 1, len(prompt), rng.randint(0, N_CTX - 4)]),
        }
        shifting.append(request.model_copy(update=more))
    return shifting


@pytest.mark.parametrize(
    ("drafter", "sampling", "room"),
    [*zip(sorted(DRAFTERS), cycle(sorted(SAMPLINGS)), cycle(ROOMS), strict=False)],
)
def test_with_every_drafter_the_tokens_are_the_plain_ones(drafter, sampling, room):
    rng = random.Random(f"{drafter} {sampling}")
    limits = ROOMS[room]
    requests = endless(requests_for(SAMPLINGS[sampling], rng, n=4), rng)
    policy = rng.choice(["fixed", "adaptive", "sync"])
    prove(requests, drafter, limits, rng, policy=policy, make_drafters=local_drafters)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("drafter", ["silent", "perfect", "hostile", "several", "equal back"])
def test_with_every_memory_the_tokens_are_the_plain_ones(drafter, memory):
    rng = random.Random(f"{drafter} {memory}")
    limits = make_limits(
        3, N_CTX + 15, N_CTX, rng.choice([9, 40]), traits=MEMORIES[memory], n_checkpoints=rng.choice([0, 2])
    )
    requests = endless(with_checkpoints(requests_for(SAMPLINGS["sampled"], rng), rng), rng)
    front, _ = prove(requests, drafter, limits, rng)
    assert sum(len(text) > 2 * N_CTX for text in front.texts.values()) >= _N_LONG


@pytest.mark.parametrize("memory", ALL_MEMORIES)
@pytest.mark.parametrize("seed", range(3))
def test_after_any_deaths_of_the_engine_the_tokens_are_the_plain_ones(memory, seed):
    rng = random.Random(f"{memory} {seed}")
    limits = make_limits(3, N_CTX + 15, N_CTX, 9, traits=ALL_MEMORIES[memory], n_checkpoints=2)
    requests = endless(requests_for(SAMPLINGS["sampled with penalties"], rng), rng)
    truth = truth_of(requests, limits)
    deaths = [rng.choice([0, 1, 7, 60, 150]) for _ in range(20)]
    answers = Front().answer(requests, limits, deaths)
    assert {name: (each.tokens.tolist(), each.finish_reason) for name, each in answers.items()} == truth


# The proofs above prove something only if contexts are shifted in them, and drafts taken across shifts.


def shifting(name="s", n_tokens=4 * N_CTX, **more):
    bias = {"logit_bias": dict.fromkeys(END_TOKENS, -1e9)}
    base = submit(name, max_tokens=n_tokens)
    return base.model_copy(update={"n_keep": 2, "sampling": base.sampling.model_copy(update=bias), **more})


def run_alone(request, limits=ROOMS["roomy"], drafter=None):
    truth = truth_of([request], limits)
    front = FakeFront({0: [request]}, (drafter or Perfect)(texts_of(truth)))
    target = run_engine(front, limits, depth=6)
    assert front.texts == texts_of(truth)
    return front, target


def test_no_step_goes_beyond_a_length_at_which_the_context_is_shifted():
    front, _ = run_alone(shifting())
    steps = front.of(Committed)
    ends = {step.start + len(step.tokens) for step in steps}
    assert {24, 35, 46, 57, 68, 79, 90} <= ends
    assert any(len(step.tokens) == 7 for step in steps if step.start > N_CTX)


def test_only_what_follows_the_kept_tokens_is_decoded_again():
    _, target = run_alone(shifting(n_tokens=N_CTX), drafter=lambda _truth: Silent())
    n_tokens = sum(sum(step) for step in target.steps)
    assert n_tokens == 2 + N_CTX - 1 + (N_CTX - 2) // 2 - 1


def test_a_memory_that_cannot_be_cut_back_goes_on_at_its_checkpoint_of_the_kept_tokens():
    limits = make_limits(1, N_CTX, N_CTX, 40, traits=MEMORIES["rollback"], n_checkpoints=2)
    request = shifting(tokens=[1, 2, 4, 5] * 4, n_keep=12)
    _, target = run_alone(request, limits)
    assert target.n_loaded > 5


def test_a_text_that_ends_where_its_context_is_full_is_not_shifted():
    _, target = run_alone(shifting(n_tokens=N_CTX - 2), drafter=lambda _truth: Silent())
    assert len(target.slots[0]) == N_CTX - 1


def test_an_endless_text_lets_others_run_when_its_context_is_shifted():
    limits = make_limits(1, N_CTX, N_CTX, 40)
    other = submit("other", max_tokens=5)
    front = FakeFront({0: [shifting(n_tokens=500)], 3: [other]})
    run_engine(front, limits)
    order = [event.sequence for event in front.events if isinstance(event, Started)]
    assert order == ["s", "other", "s"]
    assert front.of(Committed, "other")[-1] in front.events[: len(front.events) // 2]


def test_two_endless_texts_take_turns_in_one_slot():
    limits = make_limits(1, N_CTX, N_CTX, 40)
    requests = [shifting("a"), shifting("b", tokens=[5, 6, 7])]
    front = FakeFront({0: requests})
    run_engine(front, limits)
    assert front.texts == texts_of(truth_of(requests, limits))
    order = [event.sequence for event in front.events if isinstance(event, Started)]
    assert order[:6] == ["a", "b", "a", "b", "a", "b"]


def test_what_is_left_of_a_shifted_text_serves_no_prompt_that_is_another_text():
    """The slot holds the beginning and a later part of a text. The next prompt equals only the beginning."""
    limits = make_limits(1, N_CTX, N_CTX, 40)
    first = shifting(tokens=[1, 2, 4], n_tokens=30, n_keep=3)
    text = texts_of(truth_of([first], limits))["s"]
    second = submit("t", text[:15], max_tokens=5)
    requests = [first, second]
    front = FakeFront({0: [first], 200: [second]})
    run_engine(front, limits, make_target=FakeTarget)
    assert front.texts == texts_of(truth_of(requests, limits))
    assert front.of(Started, "t")[0].n_cached == 3
