"""A completion in progress, as the engine sees it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lead.engine.commands import RequestOptions
from lead.engine.events import TokenProbabilities
from lead.engine.speculation.draft_chain import DraftChain
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
    """`tokens` only ever grows. Written by `SlotManager`, but `verification` by the scheduler.

    Its sampler is made when it is first needed: that takes time and memory, and many may wait in the queue.
    """

    id: str
    tokens: list[int]
    make_sampler: Callable[[], Sampler]
    max_tokens: int | None
    n_prompt: int = 0  # 0: all tokens
    number: int | None = None  # sequences are numbered as they first get a slot
    options: RequestOptions = field(default_factory=RequestOptions)
    was_started: bool = False  # it has had a slot, here or in an earlier engine process
    n_cached: int = 0  # tokens that its slot held already when it first got it
    checkpoints: tuple[int, ...] = ()  # lengths of the prompt at which a later request may branch off
    verification: Verification | None = None
    _sampler: Sampler | None = None

    def __post_init__(self) -> None:
        self.n_prompt = self.n_prompt or len(self.tokens)

    @property
    def sampler(self) -> Sampler:
        if self._sampler is None:
            self._sampler = self.make_sampler()
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
        """How many more tokens it may get."""
        room = n_ctx - len(self.tokens)
        return room if self.max_tokens is None else min(room, self.max_tokens - self.n_generated)

    def n_useful(self, n_ctx: int) -> int:
        """The most draft tokens of a step that can be committed."""
        n = self.n_left(n_ctx) - 1
        return n if self.options.n_draft is None else min(n, self.options.n_draft)
