"""A lead may commit anything: the drafter's records stay right, and drafts are its model's own choice."""

import functools
import random
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.sampling.parameters import SamplingParameters
from shared.text_store import PromptCacheSize
from tests.shared.drafting.drafting import DrafterHarness
from tests.toy_model import END_TOKENS, N_VOCAB, FailingTarget, extend_hash, toy_sampler

MAX_AHEAD = 9


def paths(draft):
    """For each token of a draft, the tokens on the path to it and its place among its siblings."""
    parents = draft.parents or range(-1, len(draft.tokens) - 1)
    ways, n_children = [], {}
    for token, parent in zip(draft.tokens, parents, strict=True):
        before = ways[parent] if parent >= 0 else []
        place = n_children.setdefault(parent, 0)
        n_children[parent] += 1
        ways.append([*before, token])
        yield before, place


class DrafterMachine(RuleBasedStateMachine):
    """A lead that commits at random. The model checks its own records and the windows at each decode."""

    traits = PLAIN
    options: ClassVar = {"n_window": 12}
    rngs = st.integers(0, 1 << 20).map(random.Random)

    def __init__(self):
        super().__init__()
        self.committed = {}
        self.sampling = {}
        self.drafts = {}
        self.n_opened = 0
        self.harness = DrafterHarness(
            n_slots=2,
            n_ahead=MAX_AHEAD,
            n_batch=6,
            n_chunk=2,
            n_branches=2,
            n_branch_tokens=3,
            blur=0.2,
            traits=self.traits,
            **self.options,
        )

    @rule(
        rng=rngs,
        n=st.sampled_from([0, 1, 7, 30, 45]),
        own=st.integers(0, 1),
        temperature=st.sampled_from([0, 1, 3]),
        penalty=st.sampled_from([0, 5]),
    )
    def open(self, rng, n, own, temperature, penalty):
        name = f"s{self.n_opened}"
        self.n_opened += 1
        stem = [own, 9, 2, 9, 4, 1, 1, 8, 22, 5, 6, 0] * 4
        tokens = [*stem[:n], rng.randrange(N_VOCAB)]
        sampling = SamplingParameters(
            seed=1, temperature=temperature, presence_penalty=penalty, repeat_last_n=4
        )
        self.harness.open(name, tokens, sampling)
        if len(self.committed) < 2:
            self.committed[name], self.sampling[name] = tokens, sampling

    @precondition(lambda self: self.committed)
    @rule(rng=rngs)
    def close(self, rng):
        name = rng.choice(sorted(self.committed))
        self.harness.close(name)
        del self.committed[name]

    @precondition(lambda self: self.committed)
    @rule(rng=rngs, n_right=st.integers(0, 6), n_back=st.integers(0, 3), other=st.booleans())
    def extend(self, rng, n_right, n_back, other):
        """Commit a part of the draft, then perhaps another token. Some committed tokens are sent again."""
        name = rng.choice(sorted(self.committed))
        committed = self.committed[name]
        new = [*self.way(name, rng)[:n_right], *([rng.randrange(N_VOCAB)] if other else [])]
        start = max(0, len(committed) - n_back)
        committed += new
        self.harness.extend(start, committed[start:], name)

    def way(self, name, rng):
        draft = self.harness.draft(name)
        if draft is None:
            return []
        i = rng.randrange(len(draft.tokens))
        before, _ = list(paths(draft))[i]
        return [*before, draft.tokens[i]]

    @rule(n_ahead=st.integers(0, MAX_AHEAD), min_confidence=st.sampled_from([0, 0.05, 0.5, 1]))
    def tune(self, n_ahead, min_confidence):
        self.harness.tune(n_ahead, min_confidence)

    @rule()
    def lose_the_connection(self):
        self.harness.drafter.reset()
        self.committed.clear()

    @rule(n=st.integers(1, 9))
    def step(self, n):
        for _ in range(n):
            for sequence in self.harness.drafter.step():
                self.check(sequence.draft())

    def check(self, draft):
        committed = self.committed[draft.sequence]
        assert draft.base == len(committed)
        ways = list(paths(draft))
        assert all(len(before) < MAX_AHEAD for before, _ in ways)
        assert not any(END_TOKENS.intersection(before) for before, _ in ways)
        if self.harness.drafter.sequences[draft.sequence].window_start == 0:  # else it sees another text
            for (before, place), token, confidence in zip(ways, draft.tokens, draft.confidences, strict=True):
                ranked = self.rank([*committed, *before], self.sampling[draft.sequence])
                # A runner-up that is an end token, or improbable, begins no branch.
                choices = {each.token: each.confidence for each in (ranked[place:] if place else ranked[:1])}
                assert confidence == pytest.approx(choices[token], abs=1e-4)

    def rank(self, text, sampling):
        logits = self.harness.model._row(functools.reduce(extend_hash, text, 0))
        n_choices = self.harness.drafter._options.n_choices
        return toy_sampler(sampling, text).rank(logits, len(text), n_choices)

    @invariant()
    def the_books_are_right(self):
        self.harness.drafter.check_integrity()
        for name, tokens in self.committed.items():
            assert self.harness.drafter.sequences[name].committed == tokens

    @invariant()
    def without_sequences_it_is_idle(self):
        assert self.committed or self.harness.drafter.idle

    def teardown(self):
        self.harness.tune(MAX_AHEAD)
        self.harness.drain()
        for followed in self.harness.drafter.sequences.values():
            drafted = followed.main.tokens
            assert len(drafted) == MAX_AHEAD or drafted[-1] in END_TOKENS


class RecurrentDrafterMachine(DrafterMachine):
    """The same with a model that can return only to states that were kept."""

    traits = MemoryTraits(n_rollback=0, n_step_checkpoints=MAX_AHEAD + 2, equal_lengths=True)


class StoringDrafterMachine(DrafterMachine):
    """Texts of ended sequences are stored and come back, a part in each step."""

    options: ClassVar = {"n_window": 60, "prompt_cache": PromptCacheSize(150, 1, n_part=10)}

    def __init__(self):
        super().__init__()
        for own in (0, 1, 0):  # the first two are stored
            self.open(random.Random(own), 45, own, 0, 0)
            self.step(9)
            self.close(random.Random(0))


TestDrafterMachine = DrafterMachine.TestCase
TestRecurrentDrafterMachine = RecurrentDrafterMachine.TestCase
TestStoringDrafterMachine = StoringDrafterMachine.TestCase


@pytest.mark.parametrize("seed", range(5))
def test_a_cache_that_is_full_at_random_breaks_nothing(seed):
    rng = random.Random(seed)
    harness = DrafterHarness(
        n_branches=2, n_ahead=6, blur=0.3, target=functools.partial(FailingTarget, rng=rng, rate=0.1)
    )
    for number in range(40):
        name = f"s{number}"
        harness.open(name, [number % N_VOCAB])
        for _ in range(rng.randrange(20)):
            harness.drafter.step()
            harness.drafter.check_integrity()
        if draft := harness.draft(name):
            harness.extend(1, [*draft.tokens[:2], 9], name)
            harness.drain()
        harness.close(name)
    assert harness.model.n_failed > 5
    assert harness.drafter.idle
