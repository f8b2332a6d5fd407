"""An engine between fakes, clients that do anything at any moment, and checks after every step.

One seed is one run: a model's memory and limits, a policy with its drafters, and commands. The clients'
commands depend on the engine's events. Above all clients leave whose requests have just started, or wait.
"""

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lead.disk_cache.text_keeper import TextKeeper
from lead.engine.calibration import Recalibration
from lead.engine.commands import Cancel, SetBacks, SetPolicy, Submit
from lead.engine.engine_limits import EngineLimits
from lead.engine.events import Committed, Failed, PromptProgress, Started
from lead.engine.loop import Loop
from lead.engine.slot import TrialPlace
from lead.suffix.seen_texts import SeenTexts
from lead.suffix.suffix_drafter import SuffixDrafter
from shared.cache_edits import Forget, Store, apply_edits
from shared.errors import KvCacheFullError, WindowLostError
from shared.exact.batch_invariance import InvariantSizes
from shared.image_span import without_images
from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.llama.span import Span
from shared.sampling.parameters import SamplingParameters
from shared.text_store import NO_PROMPT_CACHE, PromptCacheSize
from tests import fake_backs as backs
from tests.fake_disk import FakeTextFiles, LateExecutor
from tests.random_images import RandomImages, cut, ends_with_a_token, random_kinds
from tests.toy_engine import FakeFront, inline_drafter, local_drafters, make_engine, make_limits, no_drafters
from tests.toy_model import N_VOCAB, TOY_CALLS, FailingTarget, SlowGrammar, plain_run, toy_sampler

_MAX_IN_VAIN = 200
"""The most steps that decode nothing although a sequence runs: it waits, or its grammar is not ready."""
POLICIES = ("off", "fixed", "sync", "sync", "adaptive")
BACKS = ["perfect", "random", "growing", "branching", "hostile-0", "thicket-1", "silent"]
MEMORIES = {
    "plain": (PLAIN,),
    "windows": (MemoryTraits(n_rollback=3), MemoryTraits(n_rollback=64)),
    "rollback": tuple(MemoryTraits(n_rollback=n, equal_lengths=True) for n in (1, 3, 8)),
    "step checkpoints": tuple(MemoryTraits(0, n_step_checkpoints=n, equal_lengths=True) for n in (1, 2)),
    "recurrent": (MemoryTraits(n_rollback=0, equal_lengths=True),),
}
BATCH_SIZES = (
    InvariantSizes((2, 3), (4, 8)),
    InvariantSizes((1, 2, 3, 4), (1, 2, 3, 4)),
    InvariantSizes((2, 4), (2, 4, 8), joins=False),
)
ROOMS = {
    **{name: (name, "one pool") for name in MEMORIES},
    **{f"{name}, own cells": (name, "own cells") for name in MEMORIES if name != "step checkpoints"},
    "exact": ("plain", "exact"),
}
"""Kinds of memory, and whether slots share their cells. States are kept only in one pool."""
PENALTIES = {"repeat_penalty": 1.4, "frequency_penalty": 0.2, "repeat_last_n": 5}
SAMPLINGS = (
    {"temperature": 0},
    {"temperature": 0, **PENALTIES},
    {"temperature": 0.8},
    {"temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0},
    {"temperature": 0, "grammar": "toy"},
    {"temperature": 1.0, "grammar": "toy", **PENALTIES},
    {"temperature": 1.0, "calls": TOY_CALLS},
    {"temperature": 0, "ignore_eos": True, "logit_bias": {3: -4.0, 9: 2.0}},
)


def draw_limits(room: str, rng: random.Random) -> EngineLimits:
    memory, cells = ROOMS[room]
    n_slots, n_ctx_sequence = rng.choice([1, 1, 2, 3, 4, 4]), rng.choice([40, 80, 100, 160])
    traits = rng.choice(MEMORIES[memory])
    n_all = n_slots * n_ctx_sequence
    n_ctx = rng.choice([n_ctx_sequence - 1, rng.randint(n_ctx_sequence, n_all), n_all])
    n_drafts = n_slots * (1 + (traits.n_rollback or 0))
    limits = make_limits(
        n_slots,
        n_ctx,
        n_ctx_sequence,
        n_batch=rng.choice([n_slots + 5, 20, n_drafts + 1, 80]),
        n_prompt_chunk=rng.choice([2, 20]),
        traits=traits,
        n_checkpoints=0 if traits.can_trim else rng.choice([0, 1, 3]),
        prompt_cache=draw_prompt_cache(traits, rng, has_parts=traits.can_trim and cells == "one pool"),
    )
    if cells != "one pool":
        limits = replace(limits, n_ctx=n_all, own_cells=True)
    return replace(limits, batch_sizes=rng.choice(BATCH_SIZES)) if cells == "exact" else limits


def draw_prompt_cache(traits: MemoryTraits, rng: random.Random, *, has_parts: bool) -> PromptCacheSize:
    state_bytes = 0 if traits.can_trim else 10
    n_bytes = rng.choice([0, 300, 2000, 2000])
    n_part = rng.choice([0, 5, 33]) if has_parts else 0
    return PromptCacheSize(n_bytes, 1, state_bytes, n_part, n_least_saved=5) if n_bytes else NO_PROMPT_CACHE


def draw_images(rng: random.Random, limits: EngineLimits) -> RandomImages:
    """Images for a run. Half of the runs and runs in exact mode have none."""
    if limits.batch_sizes or rng.random() < 0.5:
        return RandomImages(rng)
    is_whole = rng.random() < 0.5
    max_rows = min(12, limits.n_batch) if is_whole else 12
    return RandomImages(rng, random_kinds(rng, max_rows, whole=is_whole))


class RestlessTarget(FailingTarget):
    """Also loses windows now and then, or has no room when prompts have been decoded.

    device_rate: how often a step is computed while the loop goes on. The data of a launched step must not
    change
    before its end.
    """

    def __init__(self, *args, lost_rate=0.0, device_rate=0.0, **kwargs):
        super().__init__(*args, **kwargs)
        self._lost_rate, self._device_rate = lost_rate, device_rate
        self.n_overlapped = 0

    def launch(self, spans):
        planned = [(span.slot, span.start, list(span.tokens), span.n_logits) for span in spans]
        logits = self.decode(spans)
        held = copy.deepcopy(self.slots)

        def wait():
            self.n_overlapped += self.overlaps
            self.overlaps = self._rng.random() < self._device_rate
            assert [(span.slot, span.start, span.tokens, span.n_logits) for span in spans] == planned
            assert self.slots == held, "the cache was changed under a step"
            return logits

        return wait

    def decode(self, spans):
        if self._rng.random() < self._lost_rate:
            raise WindowLostError(
                [span.slot for span in spans if self._rng.random() < 0.5] or [spans[0].slot]
            )
        return super().decode(spans)

    def _decode_part(self, part):
        if self._last and self._rng.random() < self._rate:
            raise KvCacheFullError("no room after prompts")
        return super()._decode_part(part)


@dataclass
class Habits:
    """The actions of a run's clients, as probabilities in each step."""

    come: float
    lengths: tuple[int | None, ...]
    leave: float
    leave_at_start: float
    regenerate: float
    change: float
    shift: float
    options: float


def draw_habits(rng: random.Random) -> Habits:
    if rng.random() < 0.3:  # the same few questions, asked again and again, by one at a time or by many
        return Habits(rng.choice([0.08, 0.6]), (12, 30), 0.05, 0.4, 0.9, 0, 0, 0)
    return Habits(
        come=rng.choice([0.05, 0.1, 0.5, 0.9]),
        lengths=rng.choice([(0, 1), (3, 6), (1, 6, 12), (12, 30, None), (30, None)]),
        leave=rng.choice([0, 0.01, 0.05]),
        leave_at_start=rng.choice([0, 0.2, 0.6]),
        regenerate=rng.choice([0.1, 0.5, 0.8]),
        change=rng.choice([0, 0.02]),
        shift=rng.choice([0, 0, 0.3]),
        options=rng.choice([0, 0.3]),
    )


class Sometimes:
    """Another back's drafts, in some steps only."""

    def __init__(self, inner, rng: random.Random):
        self._inner, self._rng = inner, rng
        self._rate = rng.choice([0.1, 0.5])

    def drafts(self, committed):
        return self._inner.drafts(committed) if self._rng.random() < self._rate else []


class RestlessFront(FakeFront):
    """Clients that come, leave and come back, and people who change the policy and the backs."""

    def __init__(
        self, limits: EngineLimits, rng: random.Random, n_requests: int, images: RandomImages | None = None
    ):
        self.images = images or RandomImages(rng)
        self.truth: dict[str, list[int]] = {}
        super().__init__({}, Sometimes(self._draw_drafter(rng), rng), 1 << 30)
        self.requests: dict[str, Submit] = {}
        self.true_reasons: dict[str, str] = {}
        self._limits, self._rng, self._n_left = limits, rng, n_requests
        self._habits = draw_habits(rng)
        n_stem = limits.n_ctx_sequence * 3 // 5
        self._stems = [self.images.put_into(rng.choices(range(N_VOCAB), k=n_stem), 0.2) for _ in range(3)]
        self._prompts: list[list[int]] = []
        self._owners = random.Random(n_requests)
        self._fresh: set[str] = set()  # those that nothing was generated for
        self._n_cached: dict[str, int] = {}
        self._n_drained, self._left_at = 0, {}
        self.n_late = 0
        """The drains after a sequence has left in which events may still name it: see `Loop`."""
        self._script[0] = [SetBacks(names=rng.sample(BACKS, rng.randint(1, 5)))]

    def _draw_drafter(self, rng: random.Random):
        truth = self.truth
        makers = [
            backs.Silent,
            lambda: backs.Perfect(truth),
            lambda: backs.Random(rng),
            lambda: backs.Hostile(truth, rng),
            lambda: backs.Late(backs.Perfect(truth)),
            lambda: backs.Reordering(backs.Branching(truth, rng), rng),
            lambda: backs.Duplicating(backs.Hostile(truth, rng)),
            lambda: backs.Growing(truth),
            lambda: backs.Thicket(truth, rng),
            lambda: backs.Several(backs.Growing(truth), backs.Random(rng), backs.Branching(truth, rng)),
        ]
        return rng.choice(makers)()

    def drain(self, wait):
        self._script.setdefault(self._n_steps + 1, []).extend(self._commands(wait))
        self._n_drained += 1
        commands = super().drain(wait)
        self.open = bool(self.running or self._n_left)
        return commands

    def take(self, event):
        left_at = self._left_at.get(getattr(event, "sequence", None))
        if left_at is not None and self._n_drained < left_at + self.n_late:
            return
        super().take(event)
        match event:
            case Started():
                self._n_cached.setdefault(event.sequence, event.n_cached)
            case PromptProgress():
                assert self.requests[event.sequence].progress
                assert 0 <= event.n_cached <= event.n_total >= event.n_processed
            case Committed():
                self._fresh.discard(event.sequence)
                self._check_probabilities(event)
            case Failed():
                raise AssertionError(f"{event} of a valid request")

    def come_back(self):
        """After the engine's death, submit the running sequences again with all tokens that they have."""
        again = [SetBacks(names=self._rng.sample(BACKS, self._rng.randint(0, 3)))]
        for sequence in self.running:
            request = self.requests[sequence]
            n_cached, n_prompt = self._n_cached.get(sequence), len(request.tokens)
            update = {"tokens": self._rows(sequence), "n_prompt": n_prompt, "n_cached": n_cached}
            again.append(request.model_copy(update=update))
        self._script.setdefault(self._n_steps + 1, []).extend(again)

    def _note(self, command):
        if isinstance(command, Cancel):
            self._left_at[command.sequence] = self._n_drained
        super()._note(command)

    def check_texts(self):
        """Check after the run that texts are complete. Clients that left have a beginning of their text."""
        for sequence, text in self.texts.items():
            true = self.truth[sequence]
            assert text == true[: len(text)], f"{sequence} has another text"
            if sequence in self.reasons:
                assert text == true, f"{sequence} has only a part of its text"
                assert self.reasons[sequence] == self.true_reasons[sequence], sequence

    def _check_probabilities(self, event):
        request = self.requests[event.sequence]
        n_each = len(event.tokens) if request.n_probs is not None else 0
        assert len(event.probabilities) == n_each, f"probabilities of {event}"
        if not request.filtered:
            assert all(len(each.top) == request.n_probs for each in event.probabilities)

    def _commands(self, wait) -> Iterator:
        rng, habits = self._rng, self._habits
        for sequence in list(self.running) if self._n_left else ():  # the last ones stay
            is_early = sequence in self._fresh or bool(wait)
            if rng.random() < (habits.leave_at_start if is_early else habits.leave):
                yield Cancel(sequence=sequence)
        while self._n_left and ((wait is None and not self._n_due()) or rng.random() < habits.come / 2):
            request = self._request()
            yield request
            if self._n_left and rng.random() < habits.leave_at_start / 4:
                yield Cancel(sequence=request.sequence)
        if rng.random() < habits.change:
            yield SetPolicy(policy=rng.choice(POLICIES), depth=rng.choice([0, 2, 8]))
        if rng.random() < habits.change:
            yield SetBacks(names=rng.sample(BACKS, rng.randint(0, 4)))

    def _n_due(self):
        return sum(map(len, self._script.values()))

    def _request(self) -> Submit:
        self._n_left -= 1
        rng, n_ctx = self._rng, self._limits.n_ctx_sequence
        prompt = ends_with_a_token(cut(self.images.exchanged(self._prompt()), n_ctx - 1))
        images = self.images.spans(prompt)
        sampling = rng.choice(SAMPLINGS)
        n_keep = rng.randint(0, min(len(prompt), n_ctx - 2)) if rng.random() < self._habits.shift else None
        n_max = rng.choice(self._habits.lengths)
        if n_max is None and n_keep is not None:
            n_max = 3 * n_ctx
        n_keep = None if images else n_keep
        name = f"s{len(self.truth)}"
        request = Submit(
            sequence=name,
            tokens=prompt,
            sampling=SamplingParameters(
                seed=rng.randrange(99), grammar_start=len(without_images(prompt)), **sampling
            ),
            images=images,
            max_tokens=n_max,
            n_keep=n_keep,
            keep_for=self._owners.choice([None, "one", "one", "another"]),
            **self._options(len(prompt)),
        )
        self.requests[name] = request
        self.truth[name], self.true_reasons[name] = plain_run(request, n_ctx, self._limits.batch_sizes)
        answer = self.truth[name][len(request.text) :]
        self._fresh.add(name)
        if rng.random() < 0.3:
            prediction = [token if rng.random() < 0.9 else rng.randrange(N_VOCAB) for token in answer]
            request = request.model_copy(update={"prediction": prediction})
        return request

    def _prompt(self) -> list[int]:
        """An earlier prompt, perhaps with another end, a further turn, the beginning of others, and more."""
        rng = self._rng
        end = rng.choices(range(N_VOCAB), k=rng.choice([1, 1, 2, 7]))
        if self._prompts and rng.random() < self._habits.regenerate:
            tokens = rng.choice(self._prompts[-4:])
            other_end = [*cut(tokens, max(0, len(tokens) - len(end))), *end]
            return rng.choice([tokens, tokens, tokens, other_end, [*tokens, *end]])
        if self.texts and rng.random() < 0.3:
            return [*self._rows(rng.choice(list(self.texts))), *self.images.put_into(end)]
        stem = rng.choice(self._stems)
        stem = cut(stem, rng.choice([0, 3, len(stem) // 2, len(stem), len(stem)]))
        later = rng.choices(range(N_VOCAB), k=rng.choice([1, 4, 9, 50]))
        self._prompts.append([*stem, *self.images.put_into(later)])
        return self._prompts[-1]

    def _rows(self, sequence: str) -> list[int]:
        """All tokens of a sequence so far, with the rows of its images."""
        request = self.requests[sequence]
        return [*request.tokens, *self.texts[sequence][len(request.text) :]]

    def _options(self, n_prompt: int) -> dict[str, object]:
        rng = self._rng
        drawn = {
            "n_probs": rng.choice([0, 3]),
            "filtered": rng.random() < 0.5,
            "n_draft": rng.choice([0, 1, 5]),
            "cache_prompt": False,
            "slot": rng.randrange(self._limits.n_slots),
            "progress": True,
            "checkpoints": (rng.randrange(n_prompt),),
            "owner": rng.randrange(2),
        }
        return {name: value for name, value in drawn.items() if rng.random() < self._habits.options}


class HastyKeeper(TextKeeper):
    """Looks at each step, and writes the slots' texts as soon as nothing runs."""

    def run_due(self, now, *, idle):
        return super().run_due(1000 * now, idle=idle)

    def seconds_until_due(self, now):
        wait = super().seconds_until_due(1000 * now)
        return None if wait is None else min(wait, 0.001)

    def _pace(self, n_bytes):
        pass


class RandomRun:
    """The whole run of a seed. `run` raises AssertionError if anything is wrong."""

    def __init__(self, seed: int, room: str):
        self._rng = rng = random.Random(f"{room} {seed}")
        self._prices = random.Random(seed)  # of texts that move
        step_bytes = self._prices.choice([0, 1, 1000])
        self.limits = limits = replace(draw_limits(room, rng), step_bytes=step_bytes)
        self.policy, self._depth = rng.choice(POLICIES), rng.choice([1, 4, 9])
        images = draw_images(random.Random(f"images {seed}"), limits)
        self.front = RestlessFront(limits, rng, n_requests=rng.choice([10, 30]), images=images)
        self._rates = {"rate": rng.choice([0, 0, 0.1]), "device_rate": rng.choice([0, 0.5, 1])}
        self.front.n_late = 2 if self._rates["device_rate"] else 0
        if limits.traits.n_rollback and not limits.traits.equal_lengths:
            self._rates["lost_rate"] = rng.choice([0, 0.05])
        self._death_rate = rng.choice([0, 0, 0, 0.01])
        self._inline_blur = rng.choice([None, None, 0.0, 0.3])
        self._inline_window = rng.choice([7, 200, 200])
        self._has_drafters, self._answers_late = rng.random() < 0.5, rng.random() < 0.5
        self._n_in_vain = 0
        self.files = FakeTextFiles(random.Random(seed), self._prices.choice([0, 0, 0.2]))
        self._n_late = self._prices.choice([0, 3, 20])
        self._start_engine()

    def run(self) -> None:
        while self.front.open:
            if self._rng.random() < self._death_rate:
                self._start_engine()
                self.front.come_back()
            n_decoded = len(self.target.steps)
            self._loop.step()
            is_vain = self.front.running and len(self.target.steps) == n_decoded
            self._n_in_vain = self._n_in_vain + 1 if is_vain else 0
            assert self._n_in_vain < _MAX_IN_VAIN, f"no end: {self.front.running}"
            self.check()
        assert self._engine.idle
        self.front.check_texts()

    def check(self) -> None:
        self._engine.check_integrity()
        if not self._engine.slots.texts._edits:  # as after a full cache, until the next plan
            self._check_slots()
            self._check_stored()

    def _start_engine(self):
        limits, rng, inline = self.limits, self._rng, None
        if self._inline_blur is not None:
            inline = inline_drafter(limits.n_slots, self._inline_blur, n_window=self._inline_window)
        seen = SeenTexts(1 << 13, 100.0, self.front.clock)

        def drafters(request):
            owner = request.owner
            suffix = {} if owner is None else {"suffix": SuffixDrafter(seen, owner)}
            return local_drafters(request) | suffix

        self._engine = make_engine(
            limits, self._depth, self.policy, drafters if self._has_drafters else no_drafters, inline
        )
        if limits.traits.can_trim and not limits.splits_lengths and not limits.batch_sizes:
            self._engine.speculation.width = lambda n, _: n + rng.choice([0, 0, 1, 3])
        if self._answers_late:
            self._engine._make_sampler = lambda request: toy_sampler(
                request.sampling, request.text, follow=lambda grammar: SlowGrammar(grammar, rng)
            )
        self.target = RestlessTarget(
            limits.n_slots,
            limits.n_ctx,
            limits.n_batch,
            n_window=limits.n_ctx_sequence,
            traits=limits.traits,
            own_cells=limits.own_cells,
            batch_sizes=limits.batch_sizes,
            copies_late=limits.prompt_cache == NO_PROMPT_CACHE,  # as `Model._copy_cells`
            rng=rng,
            **self._rates,
        )
        told = self._engine.edited
        self._engine.edited = lambda edits, _: told(edits, self._prices.choice([0.0, 1e-5, 1e-3, 1.0]))
        self.keeper = None
        if limits.prompt_cache.n_bytes:
            late = LateExecutor(self._n_late)
            self.files.open_again()
            self.keeper = HastyKeeper(
                self._engine, self.files, self.target, self.front.clock, lambda *_, **__: late
            )
        self._loop = Loop(
            self.target,
            self._engine,
            self.front,
            clock=self.front.clock,
            chores=[
                Recalibration(self._measure, self.front.now - 3.0, self._engine.slots.find_place),
                *([self.keeper] if self.keeper else ()),
            ],
        )

    def _measure(self, place: TrialPlace) -> bool:
        apply_edits(place.edits, self.target)
        n_tokens = min(self.limits.n_batch, 16)
        try:
            self.target.decode([Span(place.slot, place.n_cached, [1] * n_tokens, n_tokens)])
        except (KvCacheFullError, WindowLostError):
            return False
        self.target.trim(place.slot, place.n_cached)
        return True

    def _check_slots(self):
        """Check that the model's cells equal the records."""
        for slot, held in zip(self._engine.slots._slots, self.target.slots, strict=True):
            assert len(held) == slot.cache.n_physical, f"slot {slot.index} holds {len(held)} tokens"
            assert held[: len(slot.cache)] == slot.cache.tokens, f"slot {slot.index} holds another text"

    def _check_stored(self):
        """Check that the records name everything that is stored, and nothing else."""
        slots, texts = self._engine.slots._slots, self._engine.slots.texts.texts
        held = [
            *((text.tokens, text.snapshots) for text in texts if text.place == "memory"),
            *((self.target.slots[slot.index], slot.cache.checkpoints.values()) for slot in slots),
        ]
        expected = {each.key: tokens[each.start : each.end] for tokens, kept in held for each in kept}
        for edit in (edit for slot in slots for edit in slot.cache._edits):
            if isinstance(edit, Store):
                expected.pop(edit.snapshot.key, None)
            elif isinstance(edit, Forget) and edit.key in self.target.stored:
                expected[edit.key] = self.target.stored[edit.key][0]
        assert {key: tokens for key, (tokens, *_) in self.target.stored.items()} == expected
        for key, (tokens, _, is_wrong) in self.target.stored.items():
            assert not is_wrong, f"{len(tokens)} tokens were stored as {key} with the memory of others"
