import itertools

import pytest

from lab.planning.acceptance_trial import AcceptanceTrial
from tests.toy_engine import inline_drafter
from tests.toy_model import END_TOKENS, GREEDY, FakeTarget, toy_sampler

PROMPTS = [[0, 2], [1, 5, 7], [4]]


def tried(blur, *, prompts=PROMPTS, n_each=30, max_seconds=1e9, tick=0.001):
    """The trial of a drafter whose model is `blur` away from the target. The clock ticks with each look."""
    target, ticks = FakeTarget(), itertools.count()
    trial = AcceptanceTrial(
        target,
        [inline_drafter(2, blur)],
        toy_sampler,
        END_TOKENS,
        lambda: next(ticks) * tick,
        n_batch=target.n_batch,
    )
    trial.run(prompts, GREEDY, n_each, max_seconds)
    assert target.slots == [[]]
    return trial


def test_a_drafter_that_equals_the_target_is_always_right():
    trial = tried(0.0).trials["draft_model"]
    assert trial.n_right == trial.n_positions > 20


def test_another_one_is_sometimes_right():
    trial = tried(0.5).trials["draft_model"]
    assert 0 < trial.n_right < trial.n_positions


def test_times_are_those_of_rounds_and_of_choices():
    trial = tried(0.0)
    assert trial.trials["draft_model"].token_s == pytest.approx(0.001)
    assert trial.choose_s == pytest.approx(0.001)


def test_each_text_has_at_most_so_many_tokens():
    assert tried(0.0, n_each=4).trials["draft_model"].n_positions == 3 * len(PROMPTS)


def test_after_the_time_it_ends_but_not_before_it_has_tried_some():
    prompts = [[n, 2] for n in range(10, 16)] * 4
    trial = tried(0.0, prompts=prompts, n_each=8, max_seconds=0).trials["draft_model"]
    assert 16 <= trial.n_positions < 24


@pytest.mark.parametrize("n_tokens", [65, 80])
def test_a_prompt_may_be_longer_than_a_batch(n_tokens):
    trial = tried(0.0, prompts=[[n % 20 for n in range(n_tokens)]], n_each=8).trials["draft_model"]
    assert trial.n_right == trial.n_positions > 0


def test_without_drafters_it_measures_choices_alone():
    target, ticks = FakeTarget(), itertools.count()
    trial = AcceptanceTrial(target, [], toy_sampler, END_TOKENS, lambda: next(ticks), n_batch=target.n_batch)
    trial.run(PROMPTS, GREEDY, 4, 1e9)
    assert (trial.trials, trial.choose_s) == ({}, 1)
