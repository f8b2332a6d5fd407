"""Random traffic through the real Loop and Model, whose logits are compared with a fresh evaluation.

The traffic makes the engine reuse, copy, trim, store and load caches (`tests.random_clients`). A second
context
reads the tokens of some rows into an empty cache, and its logits are compared. A key or value that is not
what
the engine believes it to be shows as a difference.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lab.simulation.simulated_lead import TextSampler
from lead.disk_cache.text_files import TextFiles
from lead.disk_cache.text_keeper import TextKeeper
from lead.engine.commands import NGRAM, Submit
from lead.engine.drafters.lookup import NgramDrafter
from lead.engine.engine import Engine
from lead.engine.engine_limits import EngineLimits
from lead.engine.loop import Loop
from lead.engine.speculation.manager import SpeculationManager
from lead.engine.speculation.memory_batching import batching_for
from lead.engine.target_loading import limits_of
from lead.exact.target_loader import enable_exact_mode
from lead.heads.mtp_drafter import MtpDrafter
from shared.exact.batch_invariance import RESERVE
from shared.heads.hidden_sources import NextnStates
from shared.heads.mtp_heads import MtpHeads, has_heads, open_heads
from shared.image_span import ImageMemory
from shared.llama.gguf_metadata import integers
from shared.llama.model import Model
from shared.memory.plan_memory import plan_memory
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import RankedToken, Sampler
from shared.settings.model_options import CacheType, ModelOptions
from tests.checked_model import CheckedModel, Comparison
from tests.random_clients import DEPTH, Habits, RandomClients
from tests.random_images import RandomImages, embed, random_kinds

_LONG = 3
"""The length of an endless text in contexts, if contexts are shifted."""
_NGRAM_BITS = 10
_N_STORED_TEXTS, _N_STORED_TOKENS = 5, 200
"""The size of the prompt cache: too small for all texts, so that some are dropped."""
_N_PART = 25
"""The tokens that are stored and loaded in one step."""
_MAX_ON_DISK = 1 << 30
_MAX_ROWS = 100
"""The most rows of an image: more than a ubatch has."""
_RIGHT = 0.8
"""The share of right tokens in the drafts of heads."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The model and the requests of a run. `n_ctx` counts the cells of all slots together.

    `endless`: the share of requests that go on until the context is full. With `n_keep` they go on for
    several
    contexts: this many tokens stay when the context is shifted.
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
    exact: bool = False  # in sizes that agree, with cells of its own for each slot
    disk: Path | None = None  # where texts are kept that survive `TrafficRun.restart`
    images: Literal["whole", "grid"] | None = None  # of random embeddings, in prompts
    padded: bool = False  # steps without prompts, by some tokens more or less
    placement: Mapping[str, Any] = field(default_factory=dict)
    """Further options of the model, such as for a GPU. It is always compared with the CPU."""

    def cramped(self) -> "Traffic":
        """The same with too few cells for its requests, and texts that outgrow their contexts."""
        return replace(self, n_slots=3, n_ctx=400, n_requests_at_once=8, endless=0.3, n_keep=5)


class _Padding(SpeculationManager):
    """Pads as if another width took time, which it does not on a CPU."""

    def width(self, n_tokens: int, n_draft: int) -> int:
        return n_tokens + (3 * n_tokens + n_draft + self.stats.n_steps) % 5


class TrafficRun:
    """One engine under random requests. Heads for further tokens draft, if the model has them.

    Raises ModelLoadError.
    """

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._random = random.Random(traffic.seed)
        with_heads = has_heads(traffic.model)
        images, memory, embeddings = _images_of(traffic, self._random)
        self._model = _load(traffic, traffic.n_slots, traffic.n_ctx, load_mtp=with_heads, images=memory)
        self._states = NextnStates(self._model) if with_heads else None
        if traffic.exact:
            enable_exact_mode(self._model)
            assert self._model.batch_sizes, f"{traffic.model} has no exact mode"
        n_ctx = limits_of(self._model).n_ctx_sequence
        n_cells = self._model.n_ctx if self._model.plan.context.kv_unified else n_ctx
        alone = replace(traffic, kv_unified=True, placement={})
        self._fresh = _load(alone, 1, n_cells, images=memory)
        if embeddings:
            embeddings.close()  # both have mapped it
        self._fresh.batch_sizes = self._model.batch_sizes
        self._heads = self._opened_heads()
        self.target = CheckedModel(self._model, self._fresh, self._random, images)
        self._clients = RandomClients(
            Habits(
                n_vocab=self._model.n_vocab,
                n_ctx=n_ctx,
                n_max=n_ctx if traffic.n_keep is None else _LONG * n_ctx,
                n_at_once=traffic.n_requests_at_once,
                endless=traffic.endless,
                n_keep=traffic.n_keep,
            ),
            self._random,
            images,
        )
        self._start()

    def _start(self) -> None:
        traffic, limits = self._traffic, self._limits()
        speculation = (_Padding if traffic.padded else SpeculationManager)(
            "fixed",
            DEPTH,
            frozenset(),
            lambda _: {NGRAM: NgramDrafter(_NGRAM_BITS)} if traffic.exact else {},
            batching=batching_for(limits),
            batch_sizes=self._model.batch_sizes,
            inline=self._drafter(),
        )
        self._engine = Engine(limits, speculation, self._sampler, frozenset())
        self._keeper = None
        if traffic.disk:
            files = TextFiles(traffic.disk, "traffic", _MAX_ON_DISK)
            self._keeper = _KeeperOfTraffic(self._engine, files, self.target, self._clients.clock)
        self._loop = Loop(
            self.target,
            self._engine,
            self._clients,
            clock=self._clients.clock,
            chores=[self._keeper] if self._keeper else [],
        )

    def restart(self) -> None:
        """Let all clients leave, and go on with another engine, which knows only the texts on disk."""
        for cancel in self._clients.leave():
            self._engine.apply(cancel, self._clients.clock())
        assert self._keeper, "nothing is on disk"
        self._keeper.__exit__(None)
        self.target.clear()
        if self._heads:
            self._heads.close()
            self._heads = self._opened_heads()
        self._start()

    @property
    def n_read(self) -> int:
        """The number of texts that came from disk."""
        return self.target.n_read

    @property
    def n_beyond(self) -> int:
        """The number of steps of texts longer than the context."""
        return self._clients.n_beyond

    @property
    def comparison(self) -> Comparison:
        """The comparison so far."""
        return self.target.comparison

    def run(self, n_comparisons: int) -> Comparison:
        """Serve until `n_comparisons` rows have been compared."""
        while len(self.comparison.differences) < n_comparisons:
            self.step()
        return self.comparison

    def step(self) -> None:
        """Do one step. Raises the errors that end an engine: AssertionError, DecodeError, IntegrityError."""
        self._loop.step()
        self._engine.check_integrity()

    def close(self) -> None:
        """Free all contexts."""
        if self._heads:
            self._heads.close()
        self._model.close()
        self._fresh.close()

    def _limits(self) -> EngineLimits:
        size = self._model.prompt_cache
        n_bytes = min(size.n_bytes, _N_STORED_TEXTS * size.of(_N_STORED_TOKENS, 3))
        size = replace(size, n_bytes=n_bytes, n_part=min(size.n_part, _N_PART), n_least_saved=_N_PART)
        limits = limits_of(self._model, n_checkpoints=3, prompt_cache=size)
        return replace(limits, step_bytes=0)  # texts are stored whatever that costs on this machine

    def _sampler(self, request: Submit) -> Sampler:
        return TextSampler(self._clients.scripts[request.sampling.seed].__getitem__)

    def _opened_heads(self) -> MtpHeads | None:
        return open_heads(self._model) if self._states else None

    def _drafter(self) -> MtpDrafter | None:
        if self._heads is None or self._states is None:
            return None

        def sampler_for(parameters: SamplingParameters, _history: list[int], _like: object = None) -> Sampler:
            return _MostlyRight(self._clients.scripts[parameters.seed], self._random)

        return MtpDrafter(self._heads, self._states, sampler_for, frozenset(), n_max=DEPTH)


class _KeeperOfTraffic(TextKeeper):
    """Tells a `CheckedModel` which texts it has read."""

    def run_due(self, now: float, *, idle: bool) -> float:
        coming = [text for text in self._engine.slots.texts.texts if text.place == "coming"]
        wait = super().run_due(now, idle=idle)
        assert isinstance(self._memory, CheckedModel)
        for text in coming:
            if text.place == "memory":
                self._memory.has_read(text)
        return wait


class _MostlyRight(TextSampler):
    """The sampler of a drafter for a model that writes this text."""

    def __init__(self, tokens: Sequence[int], rng: random.Random) -> None:
        super().__init__(tokens.__getitem__)
        self._tokens = tokens
        self._random = rng

    def rank(self, logits: NDArray[np.float32], position: int, n: int) -> list[RankedToken]:  # noqa: ARG002 - a script needs none
        is_right = position < len(self._tokens) and self._random.random() < _RIGHT
        return [RankedToken(self._tokens[position] if is_right else 0, _RIGHT)]


def compare(traffic: Traffic, n_comparisons: int) -> Comparison:
    """Run `traffic` until `n_comparisons` rows have been compared. Raises ModelLoadError."""
    run = TrafficRun(traffic)
    try:
        return run.run(n_comparisons)
    finally:
        run.close()


def _images_of(traffic: Traffic, rng: random.Random) -> tuple[RandomImages, ImageMemory | None, Any]:
    """The images of prompts, the memory of their embeddings, and a file to close once it was mapped."""
    if traffic.images is None:
        return RandomImages(rng), None, None
    max_rows = traffic.ubatch_size if traffic.images == "whole" else _MAX_ROWS
    lengths = (n for name, n in integers(traffic.model, "").items() if name.endswith(".embedding_length"))
    n_embd = max(lengths)
    kinds = random_kinds(rng, max_rows, whole=traffic.images == "whole")
    placed, memory, file = embed(kinds, n_embd)
    return RandomImages(rng, placed), memory, file


def _load(
    traffic: Traffic, n_slots: int, n_ctx: int, *, load_mtp: bool = False, images: ImageMemory | None = None
) -> Model:
    options = ModelOptions(
        ctx_size=n_ctx,
        parallel=n_slots,
        batch_size=traffic.n_batch,
        ubatch_size=traffic.ubatch_size,
        threads=1,
        n_gpu_layers=0,
        kv_unified=traffic.kv_unified and not traffic.exact,
        swa_full=traffic.swa_full or traffic.exact,
        flash_attn=traffic.flash_attn,
        cache_type_k=traffic.cache_type,
        cache_type_v=traffic.cache_type,
    ).model_copy(update=dict(traffic.placement))
    n_reserve = RESERVE if traffic.exact else 0
    return Model(plan_memory(traffic.model, options, n_reserve=n_reserve, with_heads=load_mtp), images)
