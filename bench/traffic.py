"""Random traffic through the real Scheduler and Model, whose logits are compared with a fresh evaluation.

Requests with common beginnings, second turns, repeated requests, drafts that are half right, cancellations,
more requests than slots: whatever makes the engine reuse, copy and cut back caches. A sample of the logits is
compared with those of a second context that reads the same tokens into an empty cache. A key or value that
is not what the engine believes it to be shows as a difference.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bench.checked_model import CheckedModel, Comparison
from bench.scripted_sampler import GREEDY, ScriptedSampler
from lead.engine.commands import NGRAM, PostDraft, RequestOptions, Submit
from lead.engine.drafters.ngram import NgramDrafter
from lead.engine.engine_limits import EngineLimits
from lead.engine.events import Committed, Finished, SequenceEvent
from lead.engine.exact_model import put_into_force
from lead.engine.scheduler import Scheduler
from lead.engine.speculation.manager import SpeculationManager
from lead.engine.speculation.replaying import batching_for
from lead.engine.step_plan import StepPlan
from shared.cache_edits import apply_edits
from shared.errors import KvCacheFullError, WindowLostError
from shared.llama.model import Model
from shared.llama.width_policy import RESERVE
from shared.prompt_cache import NO_PROMPT_CACHE, PromptCacheSize
from shared.sampling.sampler import Sampler
from shared.settings.model_options import CacheType, ModelOptions

_SECONDS_PER_STEP = 0.01
"""What each step is said to take: the policy must not depend on the machine."""
_DEPTH = 6
_LONG = 3
"""How many contexts long an endless text is, where contexts are shifted."""
_NGRAM_BITS = 10
_N_STORED_TEXTS, _N_STORED_TOKENS = 5, 200
"""In the prompt cache: too few for all texts, so that some are dropped."""
_N_PART = 25
"""Tokens that are stored and loaded in one step beside others."""
_SOURCE = "half-right"


@dataclass(frozen=True, slots=True)
class Traffic:
    """What to run. `n_ctx` counts the cells of all slots together.

    `endless`: the share of requests that go on until the context is full, or with `n_keep` for several times
    its length: that many tokens stay when it is shifted.
    """

    model: Path
    seed: int = 1
    n_slots: int = 4
    n_ctx: int = 2048
    n_batch: int = 256
    ubatch_size: int = 64
    kv_unified: bool = True
    n_requests_at_once: int = 7
    endless: float = 0.05
    n_keep: int | None = None
    cache_type: CacheType = "f32"  # rounding to f16 alone makes up to 0.012 with latent attention
    flash_attn: Literal["on", "off", "auto"] = "auto"
    swa_full: bool = False
    exact: bool = False  # in widths that agree, with cells of its own for each slot


class TrafficRun:
    """One engine under random requests. Raises ModelLoadError."""

    def __init__(self, traffic: Traffic) -> None:
        self._random = random.Random(traffic.seed)  # noqa: S311 - seeded on purpose
        self._traffic = traffic
        self._model = _load(traffic, traffic.n_slots, traffic.n_ctx, kv_unified=traffic.kv_unified)
        if traffic.exact:
            put_into_force(self._model)
            assert self._model.widths, f"{traffic.model} has no exact mode"
        self._n_most = limits_of(self._model).n_ctx_sequence
        self._fresh = _load(traffic, 1, self._n_most, kv_unified=True)
        self._fresh.widths = self._model.widths
        self._scheduler = self._make_scheduler()
        self._scripts: dict[str, list[int]] = {}
        self._running: dict[str, list[int]] = {}  # committed tokens
        self._past: list[list[int]] = [self._tokens(self._random.randint(20, 150)) for _ in range(3)]
        self._now = 0.0
        self._n_submitted = 0
        self._target = CheckedModel(self._model, self._fresh, self._random)
        self.n_full = 0  # steps that found no room in the cache
        self.n_windows_lost = 0
        self.n_beyond = 0  # steps of texts that are longer than the context

    @property
    def n_cells(self) -> int:
        """How many tokens all slots hold."""
        return self._target.n_cells

    @property
    def n_loaded(self) -> int:
        """How many texts came from the prompt cache."""
        return self._target.n_loaded

    @property
    def comparison(self) -> Comparison:
        """What has been compared so far."""
        return self._target.comparison

    def run(self, n_comparisons: int) -> Comparison:
        """Serve until `n_comparisons` rows have been compared."""
        while len(self.comparison.differences) < n_comparisons:
            self.step()
        return self.comparison

    def step(self) -> None:
        """One step of the engine, with what clients and drafters do before it."""
        while len(self._running) < self._traffic.n_requests_at_once:
            self._submit()
        for sequence in list(self._running):
            if self._random.random() < 0.01:  # noqa: PLR2004 - the client leaves
                self._scheduler.cancel(sequence)
                self._end(sequence)
            elif self._random.random() < 0.7:  # noqa: PLR2004
                self._draft(sequence)
        plan = self._scheduler.plan(self._now)
        if plan is None:
            return
        self._now += _SECONDS_PER_STEP
        self._take(self._decode(plan))
        self._scheduler.check_integrity()

    def close(self) -> None:
        """Free both contexts."""
        self._model.close()
        self._fresh.close()

    def _make_scheduler(self) -> Scheduler:
        size = self._model.prompt_cache
        n_bytes = min(size.n_bytes, _N_STORED_TEXTS * size.of(_N_STORED_TOKENS, 3))
        limits = limits_of(
            self._model,
            n_checkpoints=3,
            prompt_cache=replace(size, n_bytes=n_bytes, n_part=min(size.n_part, _N_PART)),
        )
        self._speculation = SpeculationManager(
            "fixed",
            _DEPTH,
            frozenset(),
            lambda _: {NGRAM: NgramDrafter(_NGRAM_BITS)} if self._traffic.exact else {},
            batching=batching_for(limits),
            widths=self._model.widths,
        )
        self._speculation.connect([_SOURCE])
        return Scheduler(limits, self._speculation, self._sampler, frozenset())

    def _sampler(self, request: Submit) -> Sampler:
        return ScriptedSampler(self._scripts[request.sequence])

    def _decode(self, plan: StepPlan) -> list[SequenceEvent]:
        apply_edits(plan.edits, self._target)
        if not plan.spans:
            return []
        try:
            rows = self._target.decode(plan.spans)
        except KvCacheFullError as error:
            self.n_full += 1
            return self._scheduler.on_cache_full(error.lost)
        except WindowLostError as error:
            self.n_windows_lost += len(error.slots)
            self._scheduler.on_window_lost(error.slots)
            return []
        return self._scheduler.commit(plan, rows, self._now, _SECONDS_PER_STEP)

    def _take(self, events: Sequence[SequenceEvent]) -> None:
        for event in events:
            if isinstance(event, Committed) and event.sequence in self._running:
                self._running[event.sequence] += event.tokens
                self.n_beyond += event.start >= self._n_most
            elif isinstance(event, Finished):
                self._end(event.sequence)

    def _end(self, sequence: str) -> None:
        self._past.append(self._running.pop(sequence))
        del self._scripts[sequence], self._past[3:-20]  # the common beginnings stay

    def _submit(self) -> None:
        prompt = self._prompt()[: self._n_most - 2]
        sequence = f"s{self._n_submitted}"
        self._n_submitted += 1
        n_most = self._n_most if self._traffic.n_keep is None else _LONG * self._n_most
        self._scripts[sequence] = [*prompt, *self._tokens(n_most + 1 - len(prompt))]
        self._running[sequence] = list(prompt)
        endless = self._random.random() < self._traffic.endless
        self._scheduler.submit(
            Submit(
                sequence=sequence,
                tokens=prompt,
                sampling=GREEDY,
                max_tokens=n_most - len(prompt) if endless else self._random.randint(1, 60),
                n_keep=self._traffic.n_keep,
                options=RequestOptions(cache_prompt=self._random.random() > 0.05),  # noqa: PLR2004
            ),
            self._now,
        )

    def _prompt(self) -> list[int]:
        """New, or a second turn, a repetition, a branch of a text that was served before."""
        before = self._random.choice(self._past)
        match self._random.randrange(4):
            case 0:
                return self._tokens(self._random.randint(2, 200))
            case 1:
                return [*before, *self._tokens(self._random.randint(1, 60))]
            case 2:
                return list(before)
            case _:
                kept = before[: self._random.randint(1, len(before))]
                return [*kept, *self._tokens(self._random.randint(1, 60))]

    def _draft(self, sequence: str) -> None:
        """The true next tokens; in three of five drafts one of them is wrong."""
        base = len(self._running[sequence])
        n = self._random.randint(1, _DEPTH)
        tokens = self._scripts[sequence][base : base + n]
        if tokens and self._random.random() < 0.6:  # noqa: PLR2004
            tokens[self._random.randrange(len(tokens))] = self._tokens(1)[0]
        if tokens:
            self._speculation.post_draft(
                PostDraft(sequence=sequence, source=_SOURCE, base=base, tokens=tokens, received_at=self._now)
            )

    def _tokens(self, n: int) -> list[int]:
        return [self._random.randrange(self._model.n_vocab) for _ in range(n)]


def compare(traffic: Traffic, n_comparisons: int) -> Comparison:
    """Run `traffic` until `n_comparisons` rows have been compared. Raises ModelLoadError."""
    run = TrafficRun(traffic)
    try:
        return run.run(n_comparisons)
    finally:
        run.close()


def limits_of(
    model: Model, n_checkpoints: int = 0, prompt_cache: PromptCacheSize = NO_PROMPT_CACHE
) -> EngineLimits:
    """As in the engine's process."""
    n_reserve = RESERVE if model.widths else 0
    return EngineLimits(
        n_slots=model.n_slots,
        n_ctx=model.n_ctx - model.n_slots * n_reserve,
        n_ctx_sequence=min(model.n_ctx_slot - n_reserve, model.vocabulary.info.n_ctx_train),
        n_batch=model.n_batch,
        traits=model.traits,
        n_checkpoints=n_checkpoints,
        prompt_cache=prompt_cache,
        n_ctx_slot=None if model.kv_unified else model.n_ctx_slot - n_reserve,
        widths=model.widths,
        tiles_attention=model.tiles_attention,
    )


def _load(traffic: Traffic, n_slots: int, n_ctx: int, *, kv_unified: bool) -> Model:
    options = ModelOptions(
        ctx_size=n_ctx,
        parallel=n_slots,
        batch_size=traffic.n_batch,
        ubatch_size=traffic.ubatch_size,
        threads=1,
        n_gpu_layers=0,
        kv_unified=kv_unified and not traffic.exact,
        swa_full=traffic.swa_full or traffic.exact,
        flash_attn=traffic.flash_attn,
        cache_type_k=traffic.cache_type,
        cache_type_v=traffic.cache_type,
    )
    return Model(traffic.model, options, n_reserve=RESERVE if traffic.exact else 0)
