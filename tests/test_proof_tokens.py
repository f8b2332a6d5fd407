"""Proof 1: with any drafter, any company and any memory the tokens are the plain ones."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.engine.messages import Cancel, Committed, Submit
from shared.sampling import SamplingParameters
from tests.fakes import (
    END_TOKENS,
    N_VOCAB,
    Duplicating,
    FailingTarget,
    FakeFront,
    FakeTarget,
    Hostile,
    Late,
    Perfect,
    Random,
    RealBack,
    Reordering,
    Silent,
    make_limits,
    plain_run,
    run_engine,
)

DRAFTERS = {
    "silent": lambda _requests, _truth, _rng: Silent(),
    "perfect": lambda _requests, truth, _rng: Perfect(truth),
    "random": lambda _requests, _truth, rng: Random(rng),
    "hostile": lambda _requests, truth, rng: Hostile(truth, rng),
    "late": lambda _requests, truth, _rng: Late(Perfect(truth)),
    "reordering": lambda _requests, truth, rng: Reordering(Perfect(truth), rng),
    "duplicating": lambda _requests, truth, rng: Duplicating(Hostile(truth, rng)),
    "equal back": lambda requests, _truth, _rng: RealBack(requests, blur=0.0),
    "weaker back": lambda requests, _truth, _rng: RealBack(requests, blur=0.3),
    "back with a short window": lambda requests, _truth, _rng: RealBack(requests, blur=0.3, n_window=7),
}
PENALTIES = {"repeat_penalty": 1.4, "presence_penalty": 0.3, "frequency_penalty": 0.2, "repeat_last_n": 5}
SAMPLINGS = {
    "greedy": {"temperature": 0},
    "greedy with penalties": {"temperature": 0, **PENALTIES},
    "greedy with bias": {"temperature": 0, "logit_bias": {3: -4.0, 9: 2.0}, "ignore_eos": True},
    "sampled": {"temperature": 0.8},
    "sampled with penalties": {"temperature": 1.1, **PENALTIES},
    "sampled from all": {"temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0},
}
ROOMY = make_limits(n_slots=8, n_ctx=1000, n_ctx_sequence=100, n_batch=64)
CRAMPED = make_limits(n_slots=3, n_ctx=61, n_ctx_sequence=60, n_batch=11, n_prompt_chunk=3)
ONE_BY_ONE = make_limits(n_slots=1, n_ctx=59, n_ctx_sequence=60, n_batch=5)


def requests_for(sampling: dict, rng: random.Random, n=8) -> list[Submit]:
    """Prompts with common beginnings, some of them long, some to be continued by a few tokens only."""
    stem = rng.choices(range(N_VOCAB), k=40)
    return [
        Submit(
            sequence=f"s{i}",
            tokens=[*stem[: rng.choice([0, 3, 20, 38])], *rng.choices(range(N_VOCAB), k=rng.randint(1, 9))],
            sampling=SamplingParameters(seed=rng.randrange(1 << 40), **sampling),
            max_tokens=rng.choice([None, None, None, 1, 12]),
        )
        for i in range(n)
    ]


def truth_of(requests, limits):
    return {request.sequence: plain_run(request, limits.n_ctx_sequence) for request in requests}


def texts_of(truth):
    return {sequence: tokens for sequence, (tokens, _) in truth.items()}


def reasons_of(truth):
    return {sequence: reason for sequence, (_, reason) in truth.items()}


def spread(requests, rng, most=12):
    """A script that submits each request at some step."""
    script = {}
    for request in requests:
        script.setdefault(rng.randint(0, most), []).append(request)
    return script


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("limits", [ROOMY, CRAMPED, ONE_BY_ONE], ids=["roomy", "cramped", "one by one"])
def test_with_every_drafter_the_tokens_are_the_plain_ones(drafter, sampling, limits):
    rng = random.Random(f"{drafter} {sampling}")
    requests = requests_for(SAMPLINGS[sampling], rng)
    truth = truth_of(requests, limits)
    front = FakeFront(spread(requests, rng), DRAFTERS[drafter](requests, texts_of(truth), rng))
    run_engine(front, limits)
    assert front.texts == texts_of(truth)
    assert front.reasons == reasons_of(truth)


@given(
    seed=st.integers(0, 1 << 32),
    drafter=st.sampled_from(sorted(DRAFTERS)),
    sampling=st.sampled_from(sorted(SAMPLINGS)),
    n_slots=st.integers(1, 4),
    n_ctx=st.integers(59, 150),
    n_batch=st.integers(4, 40),
    n_prompt_chunk=st.integers(1, 20),
    depth=st.integers(0, 9),
)
def test_in_any_room_the_tokens_are_the_plain_ones(  # noqa: PLR0917 - what hypothesis draws
    seed, drafter, sampling, n_slots, n_ctx, n_batch, n_prompt_chunk, depth
):
    rng = random.Random(seed)
    limits = make_limits(n_slots, n_ctx, 60, n_batch, n_prompt_chunk=n_prompt_chunk)
    requests = requests_for(SAMPLINGS[sampling], rng)
    truth = truth_of(requests, limits)
    front = FakeFront(spread(requests, rng), DRAFTERS[drafter](requests, texts_of(truth), rng))
    run_engine(front, limits, depth)
    assert front.texts == texts_of(truth)
    assert front.reasons == reasons_of(truth)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_cancelled_sequences_leave_the_others_tokens_as_they_are(drafter):
    rng = random.Random(drafter)
    requests = requests_for(SAMPLINGS["sampled with penalties"], rng, n=12)
    truth = texts_of(truth_of(requests, CRAMPED))
    cancelled = {request.sequence for request in requests[::3]}
    script = spread(requests, rng)
    for sequence in sorted(cancelled):
        script.setdefault(rng.randint(3, 40), []).append(Cancel(sequence=sequence))
    front = FakeFront(script, DRAFTERS[drafter](requests, truth, rng))
    run_engine(front, CRAMPED)
    assert {sequence: text for sequence, text in front.texts.items() if sequence not in cancelled} == {
        sequence: text for sequence, text in truth.items() if sequence not in cancelled
    }
    for sequence in cancelled:
        assert front.texts[sequence] == truth[sequence][: len(front.texts[sequence])]


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_model_that_runs_out_of_room_at_random_changes_no_text(drafter):
    rng = random.Random(drafter)
    requests = requests_for(SAMPLINGS["sampled with penalties"], rng)
    truth = truth_of(requests, CRAMPED)
    front = FakeFront(spread(requests, rng), DRAFTERS[drafter](requests, texts_of(truth), rng))
    target = run_engine(
        front, CRAMPED, make_target=lambda *args, **more: FailingTarget(*args, rng=rng, rate=0.3, **more)
    )
    assert target.n_failed > 0
    assert front.texts == texts_of(truth)
    assert front.reasons == reasons_of(truth)


def test_a_model_that_cannot_trim_gives_the_same_tokens():
    class Recurrent(FakeTarget):
        def trim(self, slot, n_keep):
            assert n_keep == 0, "a recurrent state cannot be taken back by single tokens"
            super().trim(slot, n_keep)

    rng = random.Random(1)
    limits = make_limits(n_slots=3, n_ctx=70, n_ctx_sequence=60, n_batch=9, can_trim=False)
    requests = requests_for(SAMPLINGS["sampled"], rng)
    truth = truth_of(requests, limits)
    front = FakeFront(spread(requests, rng), Perfect(texts_of(truth)))
    run_engine(front, limits, make_target=Recurrent)
    assert front.texts == texts_of(truth)


# The proofs above prove something only if drafts are taken, and refused, in them.


def run_with(drafter, sampling="sampled", limits=ROOMY):
    rng = random.Random(3)
    requests = requests_for(SAMPLINGS[sampling], rng)
    truth = truth_of(requests, limits)
    front = FakeFront({0: requests}, DRAFTERS[drafter](requests, texts_of(truth), rng))
    target = run_engine(front, limits)
    return front, target


def test_perfect_drafts_are_all_accepted():
    front, _ = run_with("perfect")
    assert sum(step.n_accepted for step in front.of(Committed)) > 50
    assert all(step.tokens[-1] in END_TOKENS for step in front.of(Committed) if step.rejected)


def test_perfect_drafts_save_steps():
    _, plain = run_with("silent")
    _, speculating = run_with("perfect")
    assert len(speculating.steps) * 3 < len(plain.steps)


SELDOM_RIGHT = {"silent", "random", "back with a short window"}
"""A hash of a text's end says nothing about the whole text's."""


@pytest.mark.parametrize("drafter", sorted(DRAFTERS.keys() - SELDOM_RIGHT))
def test_drafts_that_may_be_right_are_sometimes_accepted(drafter):
    front, _ = run_with(drafter)
    assert any(step.n_accepted > 1 for step in front.of(Committed))


@pytest.mark.parametrize("drafter", ["random", "hostile", "duplicating", "weaker back"])
def test_wrong_drafts_are_sometimes_rejected(drafter):
    front, _ = run_with(drafter)
    assert any(step.rejected for step in front.of(Committed))
