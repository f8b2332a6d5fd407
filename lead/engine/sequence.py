"""A completion in progress, as the engine sees it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lead.engine.commands import Submit
from lead.engine.context_shift import MAX_TOKENS, ContextShift
from lead.engine.events import TokenProbabilities
from lead.engine.speculation.drafts import DraftChain
from shared.sampling.sampler import Sampler


@dataclass(slots=True)
class Verification:
    """A step's draft while it is compared with the target's choices, and their logits.

    Under a grammar a choice may not be ready when the step is over. `chosen` and `probabilities` are those of
    the tokens chosen so far; the sampler has accepted them, nothing else knows of them.
    """

    draft: DraftChain
    rows: NDArray[np.float32]
    chosen: list[int] = field(default_factory=list)
    probabilities: list[TokenProbabilities] = field(default_factory=list)


@dataclass(slots=True)
class EngineSequence:
    """A request, and what has become of it: `tokens` begin with its own, and only ever grow.

    Written by `SlotManager`, but `verification` by `Verifier`.

    `context` is what the model sees of it: all tokens, until a `shift` discards some. Without one the
    sequence ends when its context is full.

    Its sampler is made when it is first needed: that takes time and memory, and many may wait in the queue.
    """

    request: Submit
    make_sampler: Callable[[Submit], Sampler]
    id: str = field(init=False)
    tokens: list[int] = field(init=False)
    n_prompt: int = field(init=False)
    number: int | None = None  # sequences are numbered as they first get a slot
    was_started: bool = field(init=False)  # it has had a slot, here or in an earlier engine process
    n_cached: int = field(init=False)  # tokens that its slot held already when it first got it
    checkpoints: tuple[int, ...] = ()  # lengths of the prompt at which a later request may branch off
    verification: Verification | None = None
    shift: ContextShift | None = None
    _context: list[int] | None = None  # None: all tokens
    _sampler: Sampler | None = None

    def __post_init__(self) -> None:
        request = self.request
        self.id, self.tokens = request.sequence, list(request.tokens)
        self.n_prompt = request.n_prompt or len(request.tokens)
        self.was_started, self.n_cached = request.n_cached is not None, request.n_cached or 0
        if self.is_context_full:
            self.shift_context()

    @property
    def context(self) -> list[int]:
        return self.tokens if self._context is None else self._context

    @property
    def n_prefill(self) -> int:
        """How many tokens of the context are decoded as a prompt: that, or what the last shift left."""
        return self.n_prompt if self.shift is None or self._context is None else self.shift.n_left

    @property
    def is_context_full(self) -> bool:
        """Whether it can go on only with a shift."""
        return self.shift is not None and len(self.context) >= self.shift.n_ctx

    def shift_context(self) -> int:
        """Discard the oldest tokens of a full context; returns how many of the first ones have stayed."""
        assert self.shift
        self._context = self.shift.context(self.tokens)
        self.checkpoints = tuple(n for n in self.checkpoints if n <= self.shift.n_keep)
        return self.shift.n_keep

    def append(self, tokens: Sequence[int]) -> None:
        self.tokens += tokens
        if self._context is not None:
            self._context += tokens

    @property
    def sampler(self) -> Sampler:
        if self._sampler is None:
            self._sampler = self.make_sampler(self.request)
        return self._sampler

    def drop_verification(self) -> None:
        """What was being verified will be decoded and chosen again."""
        if self.verification is not None:
            self.verification = None
            self.sampler.rewind(self.tokens)

    @property
    def n_generated(self) -> int:
        return len(self.tokens) - self.n_prompt

    def n_left(self, n_ctx: int) -> int:
        """How many more tokens it may get before it ends, or its context has to be shifted."""
        return min(n_ctx - len(self.context), self._n_allowed)

    def is_complete(self, n_ctx: int) -> bool:
        return self._n_allowed <= 0 or (self.shift is None and len(self.context) >= n_ctx)

    def n_useful(self, n_ctx: int) -> int:
        """The most draft tokens of a step that can be committed."""
        n, n_most = self.n_left(n_ctx) - 1, self.request.n_draft
        return n if n_most is None else min(n, n_most)

    @property
    def _n_allowed(self) -> int:
        """How many more tokens it may get, whatever the context takes."""
        n, n_most = MAX_TOKENS - len(self.tokens), self.request.max_tokens
        return n if n_most is None else min(n, n_most - self.n_generated)
