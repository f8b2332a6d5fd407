"""After any drafts and drops, a back's logits equal a fresh evaluation's."""

import random
from dataclasses import replace

import pytest

from shared.drafting.drafter import Drafter
from shared.drafting.drafter_options import DrafterOptions
from shared.llama.model import Model
from shared.memory.plan_memory import plan_memory
from shared.protocol import Close, Extend, Open
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler
from shared.settings.model_options import ModelOptions
from tests.checked_model import CheckedModel
from tests.conftest import more

GREEDY = SamplingParameters(temperature=0.0, seed=0)
N_STEPS = 200


class DraftedSequences:
    """Two sequences with a drafter. Some committed tokens are drafted, the others are random."""

    def __init__(self, path, seed=1):
        self.rng = random.Random(seed)
        options = DrafterOptions(n_slots=2, n_window=400, n_ahead=8, n_branches=2)
        self.model = load(path, options.n_model_slots, 3 * 512, n_step_checkpoints=10)
        options = replace(options, prompt_cache=self.model.prompt_cache)
        self.fresh = load(path, 1, 512)
        self.checked = CheckedModel(self.model, self.fresh, self.rng)
        self.interrupt = self.model.interrupt()
        self.n_interrupted = 0
        self.drafter = Drafter(self.checked, options, greedy_sampler, frozenset(), interrupt=self.interrupt)
        self.texts = {}
        self.ended = []
        self.n_opened = 0

    def run(self):
        for _ in range(N_STEPS):
            while len(self.texts) < 2:
                self.open()
            self.step()
            self.drafter.check_integrity()
            if self.rng.random() < 0.4:
                self.commit(self.rng.choice(list(self.texts)))
        return self.checked.comparison

    def step(self):
        self.drafter.begin()
        if self.interrupt and self.rng.random() < 0.1:
            self.interrupt.set()
            self.n_interrupted += bool(self.drafter.n_decoded)
        self.drafter.finish()

    def open(self):
        text = [self.rng.randrange(self.model.n_vocab) for _ in range(self.rng.randint(2, 200))]
        if self.ended and self.rng.random() < 0.5:  # another turn of one of them
            text = self.rng.choice(self.ended)[: self.rng.randint(40, 250)] + text[:40]
        sequence = f"s{self.n_opened}"
        self.n_opened += 1
        self.texts[sequence] = text
        self.drafter.handle(Open(sequence=sequence, sampling=GREEDY, tokens=list(text)))

    def commit(self, sequence):
        """Commit a part of the main branch or of a side branch, then perhaps a random token."""
        text, state = self.texts[sequence], self.drafter.sequences.get(sequence)
        draft = state and state.draft()
        path = self.path_through(draft) if draft else []
        tokens = path[: self.rng.randint(0, len(path))]
        if not tokens or self.rng.random() < 0.5:
            tokens = [*tokens, self.rng.randrange(self.model.n_vocab)]
        self.drafter.handle(Extend(sequence=sequence, start=len(text), tokens=tokens))
        text += tokens
        if len(text) > 350 or self.rng.random() < 0.1:
            self.drafter.handle(Close(sequence=sequence, reason="ended"))
            self.ended.append(self.texts.pop(sequence))

    def path_through(self, draft):
        """The tokens from the root of the draft's tree to a random token."""
        parents = draft.parents or list(range(-1, len(draft.tokens) - 1))
        at, path = self.rng.randrange(len(draft.tokens)), []
        while at >= 0:
            path.append(draft.tokens[at])
            at = parents[at]
        return path[::-1]

    def close(self):
        self.model.close()
        self.fresh.close()


def load(path, n_slots, n_ctx, n_step_checkpoints=0):
    options = ModelOptions(
        ctx_size=n_ctx,
        parallel=n_slots,
        batch_size=64,
        threads=1,
        cache_type_k="f32",
        cache_type_v="f32",
        swa_full=True,
    )
    return Model(plan_memory(path, options, n_slots, n_step_checkpoints))


def greedy_sampler(parameters, history, _like=None):
    return Sampler(parameters, None, history)


@pytest.mark.parametrize(
    "architecture", ["llama", "gemma3", more("gpt-oss"), "qwen35", more("jamba"), "mamba2", more("lfm2")]
)
def test_logits_of_a_drafter_equal_a_fresh_evaluation(tiny_model, architecture):
    sequences = DraftedSequences(tiny_model(architecture))
    comparison = sequences.run()
    sequences.close()
    assert bool(sequences.n_interrupted) == sequences.model.traits.can_trim
    assert len(comparison.differences) > N_STEPS / 2
    assert comparison.n_wrong(0.01) == 0


def test_logits_after_a_text_that_was_stored_equal_a_fresh_evaluation(tiny_model):
    sequences = DraftedSequences(tiny_model("llama"), seed=5)
    comparison = sequences.run()
    sequences.close()
    assert sequences.checked.n_loaded > 0
    assert comparison.n_wrong(0.01) == 0
