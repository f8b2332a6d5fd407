import random
from dataclasses import replace

import pytest

from lead.engine.drafters.lookup import NgramDrafter
from lead.engine.engine import Engine
from lead.engine.loop import Loop
from lead.engine.speculation.manager import SpeculationManager
from lead.engine.speculation.memory_batching import batching_for
from lead.engine.target_loading import limits_of
from shared.image_span import ImageSpan, row_identities
from shared.llama.model import Model
from shared.memory.plan_memory import plan_memory
from shared.sampling.sampler import Sampler
from shared.settings.model_options import ModelOptions
from tests.fake_backs import Branching, Hostile, Perfect, Random, Several, Silent
from tests.random_images import embed
from tests.toy_engine import FakeFront, submit
from tests.toy_model import GREEDY

N_GENERATED = 24
KINDS = {
    "gemma3": {"n_rows": 40, "n_positions": 40, "whole": True},
    "qwen2vl": {"n_rows": 77, "n_positions": 11, "width": 7},
}
BEFORE, AFTER = [30, 40, 50, 60, 70], [80, 90, 100]
BACKS = {
    "one that is right": Perfect,
    "one that is half right": lambda truth: Branching(truth, random.Random(1)),
    "one that is wrong": lambda _: Random(random.Random(1)),
    "three": lambda truth: Several(
        Perfect(truth), Random(random.Random(1)), Hostile(truth, random.Random(2))
    ),
}


class Seeing:
    """A model with two images of the same size, and an engine for each run."""

    def __init__(self, path, kind):
        images = [ImageSpan(start=0, key=key, **KINDS[kind]) for key in "ab"]
        placed, memory, file = embed(images, 64)
        given = {"ctx_size": 1024, "parallel": 2, "ubatch_size": 64, "threads": 1, "flash_attn": "off"}
        options = ModelOptions(swa_full=True, **given)
        self.images = {image.key: image for image in placed}
        self.model = Model(plan_memory(path, options), memory)
        file.close()

    def request(self, *parts, sequence="s"):
        """`parts`: tokens, and keys of images."""
        tokens, images = [], []
        for part in parts:
            if isinstance(part, str):
                images.append(self.images[part].model_copy(update={"start": len(tokens)}))
                tokens += row_identities(part, self.images[part].n_rows)
            else:
                tokens += part
        return submit(sequence, tokens, images=tuple(images), max_tokens=N_GENERATED)

    def run(self, requests, drafter=None, *, preempts=False, lookups=False):
        """Return the last tokens of each text. Requests run one after the other.

        `preempts`: they run at the same time, and some give way.
        """
        self.model.clear()
        limits = replace(limits_of(self.model, prompt_cache=self.model.prompt_cache), step_bytes=0)
        makes = {"ngram": NgramDrafter(10)} if lookups else {}
        speculation = SpeculationManager(
            "fixed", 4, frozenset(), lambda _: makes, batching=batching_for(limits)
        )
        engine = Engine(limits, speculation, lambda _: Sampler(GREEDY, None, []), frozenset())
        script = {0: requests} if preempts else {1000 * i: [each] for i, each in enumerate(requests)}
        front = FakeFront(script, drafter, max_steps=10_000)
        loop, n_steps = Loop(self.model, engine, front, clock=front.clock), 0
        while front.open:
            loop.step()
            engine.check_integrity()
            n_steps += 1
            if preempts and n_steps in {8, 20} and (running := engine.slots.running()):
                engine.slots.preempt(running[-1])
        return {name: text[-N_GENERATED:] for name, text in front.texts.items()}, front


@pytest.fixture(scope="module", params=KINDS)
def seeing(request, tiny_model):
    found = Seeing(tiny_model(request.param), request.param)
    yield found
    found.model.close()


@pytest.fixture(scope="module")
def plain(seeing):
    """The request and its text, without drafts."""
    request = seeing.request(BEFORE, "a", AFTER, "b", AFTER)
    texts, front = seeing.run([request], Silent())
    return request, texts, front.texts


@pytest.mark.parametrize("backs", BACKS)
@pytest.mark.parametrize("lookups", [False, True])
def test_who_drafts_changes_no_text(seeing, plain, backs, lookups):
    request, texts, truth = plain
    found, _ = seeing.run([request], BACKS[backs](truth), lookups=lookups)
    assert found == texts


def test_drafts_of_a_back_that_is_right_are_accepted(seeing, plain):
    request, _, truth = plain
    _, front = seeing.run([request], Perfect(truth))
    accepted = [event.n_accepted for event in front.events if event.type == "committed"]
    assert sum(accepted) >= N_GENERATED // 2


def test_what_is_reused_changes_no_text(seeing):
    """The same image again, another image of its size, and further turns with and without an image."""
    first = [BEFORE, "a", AFTER]
    prompts = [
        first,
        first,
        [BEFORE, "b", AFTER],
        [*first, [1, 2, 3], "b", [4]],
        [*first, [1, 2, 3], "a", [4]],
        [BEFORE, "a", "b", AFTER],
        [BEFORE, "a", [9]],
    ]
    requests = [seeing.request(*prompt, sequence=f"s{i}") for i, prompt in enumerate(prompts)]
    alone = {}
    for request in requests:
        alone |= seeing.run([request])[0]
    assert len(set(map(tuple, alone.values()))) == len(prompts) - 1
    found, front = seeing.run(requests)
    assert found == alone
    assert sum(event.n_cached for event in front.events if event.type == "started") > 0


def test_who_gives_way_goes_on_with_the_same_text(seeing):
    requests = [
        seeing.request(BEFORE, "a", AFTER, sequence="s0"),
        seeing.request([5], "b", AFTER, "a", [6], sequence="s1"),
        seeing.request([5], "b", AFTER, sequence="s2"),
    ]
    alone = {}
    for request in requests:
        alone |= seeing.run([request])[0]
    found, front = seeing.run(requests, preempts=True)
    assert found == alone
    assert any(event.again for event in front.events if event.type == "started")
