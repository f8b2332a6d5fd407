"""A slot: one sequence's place in the KV cache, and what is left there when the sequence has gone."""

from collections.abc import Callable
from dataclasses import dataclass, field

from lead.engine.commands import RequestOptions
from shared.sampling.sampler import Sampler
from shared.slot_cache import SlotCache


@dataclass(slots=True)
class EngineSequence:
    """A completion in progress, as the engine sees it. `tokens` only ever grows.

    Its sampler is made when it is first needed: that takes time and memory, and many may wait in the queue.
    """

    id: str
    tokens: list[int]
    make_sampler: Callable[[], Sampler]
    max_tokens: int | None
    n_prompt: int = field(init=False)
    number: int | None = None  # sequences are numbered as they first get a slot
    options: RequestOptions = field(default_factory=RequestOptions)
    n_cached: int = 0  # tokens that its slot held already when it first got it
    _sampler: Sampler | None = None

    def __post_init__(self) -> None:
        self.n_prompt = len(self.tokens)

    @property
    def sampler(self) -> Sampler:
        if self._sampler is None:
            self._sampler = self.make_sampler()
        return self._sampler

    @property
    def n_generated(self) -> int:
        return len(self.tokens) - self.n_prompt

    def n_left(self, n_ctx: int) -> int:
        """How many more tokens it may get."""
        room = n_ctx - len(self.tokens)
        return room if self.max_tokens is None else min(room, self.max_tokens - self.n_generated)

    def n_useful(self, n_ctx: int) -> int:
        """How many draft tokens of a step may be of use."""
        n = self.n_left(n_ctx) - 1
        return n if self.options.n_draft is None else min(n, self.options.n_draft)


@dataclass(slots=True)
class Slot:
    """A place for one sequence. Its cache outlives it: a later request may have the same beginning.

    tokens of the sequence   [0 ........................ len(tokens))
    valid in the cache       [0 .......... len(cache))
    to decode next                         [len(cache) .. len(tokens))
    """

    cache: SlotCache
    sequence: EngineSequence | None = None
    last_used: int = 0

    @property
    def index(self) -> int:
        return self.cache.index

    @property
    def n_todo(self) -> int:
        """Committed tokens not yet in the cache: one while generating, more while a prompt is processed."""
        return len(self.sequence.tokens) - len(self.cache) if self.sequence else 0
