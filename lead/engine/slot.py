"""A slot: the place of one sequence in the KV cache. Its cache is kept when the sequence has ended."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lead.engine.sequence import EngineSequence
from lead.engine.speculation.constants import MAX_DEPTH
from shared.cache_edits import CacheEdit
from shared.image_span import ImageSpan
from shared.llama.batch_layout import BatchSizes
from shared.slot_cache import SlotCache

MAX_REPLAY = 12
"""The maximum number of committed tokens to decode again beside a draft; with more, no draft is verified, as
each rejection would add more.
"""


@dataclass(slots=True, eq=False)
class Slot:
    """A place for one sequence. A later request with the same prefix can reuse its cache.

        context of the sequence  [0 ........................ len(context))
        valid in the cache       [0 .......... len(cache))
        to decode next                         [len(cache) .. len(context))

    Only `SlotManager` writes it.
    """

    cache: SlotCache
    sequence: EngineSequence | None = None
    last_used: int = 0
    n_steps_idle: int = 0  # steps of other sequences since its own ended
    evicted_tokens: list[int] = field(default_factory=list)  # its last text, now in host memory only

    @property
    def index(self) -> int:
        return self.cache.index

    @property
    def n_to_decode(self) -> int:
        """The number of committed tokens that are not yet in the cache.

        It is 1 while generating. It is more during a prompt, after a context shift, and while accepted tokens
        are replayed because the memory could not be cut back precisely.
        """
        return len(self.sequence.context) - len(self.cache.tokens) if self.sequence else 0

    @property
    def is_generating(self) -> bool:
        """True if the next step reaches the end of the slot's tokens."""
        n = self.n_to_decode
        return n == 1 or (self.is_replaying and n <= MAX_REPLAY + MAX_DEPTH and self.has_read_images)

    @property
    def is_waiting(self) -> bool:
        """True if a verification is in progress; the sequence sits out steps until it is complete."""
        return self.sequence is not None and self.sequence.verification is not None

    @property
    def is_replaying(self) -> bool:
        """True if generated tokens may need decoding again, as the memory cannot be cut back precisely."""
        return self.cache.traits.replays and self.sequence is not None and self.sequence.n_generated > 0

    @property
    def has_read_images(self) -> bool:
        """True if only tokens, not image rows, are left to decode."""
        return self.sequence is not None and len(self.cache) >= self.sequence.images_end

    @property
    def image(self) -> ImageSpan | None:
        """The image whose rows must be decoded next; None: a token is next."""
        if self.sequence is None or self.has_read_images:
            return None
        return next((image for image in self.sequence.images if image.start == len(self.cache)), None)

    @property
    def is_in_prompt(self) -> bool:
        """True if the next token to decode is part of the prompt, or was left by a context shift."""
        return self.sequence is not None and len(self.cache) < self.sequence.n_prefill

    def n_useful(self, batch_sizes: BatchSizes | None) -> int:
        """Return the maximum number of draft tokens that can be committed.

        batch_sizes: in exact mode, the sizes of spans; the draft must fit into one of them.
        """
        if self.sequence is None or self.n_to_decode > MAX_REPLAY:
            return 0
        n = self.sequence.n_useful
        if n_rollback := self.cache.traits.n_rollback:
            n = min(n, n_rollback)
        if batch_sizes is None:
            return n
        is_last_of_prompt = self.is_in_prompt and not batch_sizes.is_uniform  # decoded in another way
        return 0 if is_last_of_prompt else min(n, batch_sizes.max_draft)

    @property
    def n_required(self) -> int:
        """The number of tokens that the slot needs in the next step, or of all rows of its next image."""
        n = self.n_to_decode
        if n <= 1:  # fewer while a draft is verified: the cache also holds the draft
            return 1
        if image := self.image:
            return image.n_rows
        return n if self.is_generating else 1

    @property
    def n_to_next_checkpoint(self) -> int:
        """The number of tokens to decode up to the next checkpoint, edge of an image, or end of the prompt.

        If there is none of these, up to the last committed token.
        """
        if self.sequence is None:
            return 0
        n_cached, n_tokens = len(self.cache), len(self.sequence.context)
        ends = [n for n in (*self.sequence.checkpoints, self.sequence.n_prefill) if n > n_cached]
        if not self.has_read_images:
            ends += [n for image in self.sequence.images for n in (image.start, image.end) if n > n_cached]
        return min(ends, default=n_tokens) - n_cached


@dataclass(frozen=True, slots=True)
class TrialPlace:
    """A place for timing steps in an idle engine: after the first `n_cached` tokens of a slot.

    Tokens can be decoded there and removed. Apply `edits` to the cache first.
    """

    slot: int = 0
    n_cached: int = 0
    edits: Sequence[CacheEdit] = ()
