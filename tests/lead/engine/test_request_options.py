"""The options with which a client chooses how it is served. They change no token."""

import numpy as np
import pytest

from lead.engine.events import Committed, Finished, PromptProgress, Started
from lead.engine.sequence import filtered_probabilities, model_probabilities
from shared.protocol import Draft
from shared.sampling.parameters import SamplingParameters
from tests.engine_harness import EngineHarness
from tests.toy_engine import submit
from tests.toy_model import GREEDY, N_VOCAB, plain_run, toy_logits, toy_sampler

PROMPT = [0, 2]


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def test_the_prompts_progress_is_reported_in_steps_when_asked_for():
    run = EngineHarness(n_batch=4)
    run.submit(tokens=range(10), max_tokens=1, progress=True)
    told = of(PromptProgress, run.drain())
    assert [event.n_processed for event in told] == [0, 4, 8, 10], "what was cached comes first"
    assert {(event.n_total, event.n_cached) for event in told} == {(10, 0)}


def test_no_tokens_means_that_the_prompt_is_read_and_kept():
    run = EngineHarness()
    run.submit(tokens=range(10), max_tokens=0)
    events = run.drain()
    assert not of(Committed, events)
    assert of(Finished, events)[0].reason == "length"
    run.submit(tokens=range(10))
    assert of(Started, run.drain())[0].n_cached == 9


def test_a_requested_slot_is_given_and_who_waits_for_it_does_not_hold_up_others():
    run = EngineHarness(n_slots=2)
    run.submit("a", PROMPT, slot=1)
    run.submit("b", PROMPT, slot=1)
    run.submit("c", PROMPT)
    run.next()
    assert [(event.sequence, event.slot) for event in run.engine.pop_events()] == [("a", 1), ("c", 0)]


@pytest.mark.parametrize(("n_draft", "widest"), [(0, 1), (2, 3), (None, 5)])
def test_no_more_draft_tokens_are_verified_than_the_request_allows(n_draft, widest):
    run = EngineHarness()
    request = submit(tokens=PROMPT, max_tokens=20, n_draft=n_draft)
    truth, _ = plain_run(request, 100)
    run.apply(request)
    run.apply(Draft(sequence="s", source="a", base=2, tokens=truth[2:20]))
    events = run.drain()
    assert max(run.lengths[1:]) == widest
    assert [token for event in of(Committed, events) for token in event.tokens] == truth[2:]


def test_probabilities_come_with_every_token_when_asked_for():
    run = EngineHarness()
    run.submit(tokens=PROMPT, max_tokens=5, n_probs=3)
    steps = of(Committed, run.drain())
    assert all(len(step.probabilities) == len(step.tokens) for step in steps)
    assert {len(probabilities.top) for step in steps for probabilities in step.probabilities} == {3}
    for step in steps:  # greedy: the chosen token is the likeliest
        for token, probabilities in zip(step.tokens, step.probabilities, strict=True):
            assert probabilities.top[0] == (token, probabilities.chosen)


def test_the_models_probabilities_are_the_log_softmax_of_its_logits():
    logits = toy_logits(7)
    told = model_probabilities(logits, 5, N_VOCAB)
    expected = logits - np.log(np.exp(logits.astype(float)).sum())
    assert told.chosen == pytest.approx(expected[5], abs=1e-5)
    assert dict(told.top) == pytest.approx(dict(enumerate(expected.tolist())), abs=1e-5)
    assert [logprob for _, logprob in told.top] == sorted((x for _, x in told.top), reverse=True)


def test_an_impossible_token_has_a_finite_log_probability():
    logits = toy_logits(7).copy()
    logits[5] = -np.inf
    assert np.isfinite(model_probabilities(logits, 5, 0).chosen)


def test_filtered_probabilities_are_those_of_the_candidates():
    parameters = SamplingParameters(seed=1, temperature=0.5, top_k=2, top_p=1, min_p=0)
    logits = toy_logits(7)
    first, second = np.argsort(-logits)[:2].tolist()
    told = filtered_probabilities(toy_sampler(parameters, []), logits, 0, second, 5)
    ratio = float(np.exp((logits[first] - logits[second]) / 0.5))
    assert [token for token, _ in told.top] == [first, second]
    assert told.chosen == pytest.approx(1 / (1 + ratio), rel=1e-4)
    assert sum(p for _, p in told.top) == pytest.approx(1)


def test_greedily_the_chosen_token_is_certain():
    logits = toy_logits(7)
    token = int(logits.argmax())
    told = filtered_probabilities(toy_sampler(GREEDY, []), logits, 0, token, 5)
    assert (told.chosen, told.top) == (1.0, [(token, 1.0)])
