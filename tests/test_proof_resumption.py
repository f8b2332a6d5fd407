"""Proof 3: whenever the engine process dies, sequences end with the same tokens as without its death.

The real scheduler, submissions and sequences run around the toy model. A process dies after any of its
events:
in the middle of a step, while prompts are read, or before anything has started. It also dies between a
sequence's last tokens and the news that it has finished.
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.engine.drafters.lookup import NgramDrafter, PredictionDrafter
from lead.engine.events import BackEvent
from lead.engine_client.sequences import Sequences
from tests.engine_harness import EngineHarness
from tests.test_proof_tokens import MEMORIES, ROOMS, SAMPLINGS, requests_for, truth_of, with_predictions
from tests.toy_engine import make_limits
from tests.toy_model import plain_run

ENDLESS = 1 << 30
LIMITS = ROOMS | {
    name: make_limits(3, 70, 60, 9, traits=traits, n_checkpoints=2) for name, traits in MEMORIES.items()
}


def drafters(request):
    n_prompt = request.n_prompt or len(request.tokens)
    return {"ngram": NgramDrafter(8), "prediction": PredictionDrafter(request.prediction, n_prompt)}


class Process:
    """An engine process that dies after `n_events` of its events."""

    def __init__(self, front, limits, n_events):
        self._front = front
        self._n_left = n_events
        self._harness = EngineHarness(policy="adaptive", make_drafters=drafters, limits=limits)

    def run(self):
        """Run until it has died, or has nothing left to do."""
        self._feed()
        while self._n_left > 0 and not self._harness.engine.idle:
            self._send(self._harness.step())

    def _feed(self):
        for submission in self._front.sequences.take_due():
            self._harness.apply(submission)
        self._send(self._harness.engine.pop_events())

    def _send(self, events):
        for event in events[: self._n_left]:
            if not isinstance(event, BackEvent):
                self._front.sequences.apply(event, self._front.tick())
            if self._front.sequences.holds_back:
                self._feed()
        self._n_left -= len(events)


class Front:
    def __init__(self):
        self.now = 0.0
        self.sequences = Sequences(self.tick, max_restarts=ENDLESS)

    def tick(self):
        self.now += 0.001
        return self.now

    def answer(self, requests, limits, deaths):
        """The ended sequences, by the ids of their requests."""
        answers = {}
        for request in requests:
            answers[request.sequence] = self.sequences.create(request)
        for n_events in [*deaths, ENDLESS]:
            Process(self, limits, n_events).run()
            self.sequences.on_death()
        return answers


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_after_any_deaths_the_tokens_are_the_plain_ones(sampling, limits):
    rng = random.Random(repr(sampling))
    requests = requests_for(sampling, rng)
    truth = truth_of(requests, limits)
    requests = with_predictions(requests, {name: tokens for name, (tokens, _) in truth.items()}, rng)
    deaths = [rng.choice([0, 1, 2, 3, 7, 20, 60]) for _ in range(30)]
    answers = Front().answer(requests, limits, deaths)
    assert {name: (each.tokens.tolist(), each.finish_reason) for name, each in answers.items()} == truth


@given(seed=st.integers(0, 1 << 20), deaths=st.lists(st.integers(0, 40), max_size=12))
def test_statistics_are_those_of_one_run(seed, deaths):
    """The cached tokens, the order of progress and of steps, and probabilities at every position."""
    limits, rng = make_limits(n_slots=2, n_ctx=120, n_ctx_sequence=60, n_batch=7), random.Random(seed)
    options = {"n_probs": 2, "filtered": rng.random() < 0.5, "progress": True, "cache_prompt": False}
    requests = [each.model_copy(update=options) for each in requests_for(SAMPLINGS["sampled"], rng, 3)]
    whole, broken = Front().answer(requests, limits, []), Front().answer(requests, limits, deaths)
    for name, sequence in broken.items():
        other = whole[name]
        assert (sequence.tokens, sequence.failure) == (other.tokens, None)
        assert (sequence.n_prompt, sequence.n_cached) == (other.n_prompt, other.n_cached)
        assert _probabilities(sequence) == _probabilities(other)
        assert [step.start for step in sequence.steps] == sorted({step.start for step in sequence.steps})
        read = [event.n_processed for event in sequence.progress]
        assert read == sorted(set(read))
        assert {event.n_total for event in sequence.progress} <= {sequence.n_prompt}


def _probabilities(sequence):
    """The probabilities at each position after the prompt."""
    given = [each for step in sequence.steps for each in step.probabilities]
    assert len(given) == len(sequence.tokens) - sequence.n_prompt
    return given


def test_one_that_had_all_its_tokens_is_finished_without_a_step():
    """The process died between `Committed` and `Finished`."""
    limits = make_limits()
    for request in requests_for(SAMPLINGS["greedy"], random.Random(4)):
        tokens, reason = plain_run(request, limits.n_ctx_sequence)
        harness = EngineHarness(limits=limits)
        whole = request.model_copy(update={"tokens": tokens, "n_prompt": len(request.tokens), "n_cached": 0})
        harness.apply(whole)
        (finished,) = harness.engine.pop_events()
        assert (finished.reason, harness.engine.idle) == (reason, True)
