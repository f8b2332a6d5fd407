"""A slot: one sequence's place in the KV cache, and the cache that is left there when the sequence
has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lead.engine.sequence import EngineSequence
from lead.engine.speculation.constants import MAX_DEPTH
from shared.cache_edits import CacheEdit
from shared.image_span import ImageSpan
from shared.llama.batch_layout import BatchSizes
from shared.slot_cache import SlotCache

MAX_REPLAY = 12
"""No draft is verified together with more committed tokens: each rejection would lengthen the replay."""


@dataclass(slots=True, eq=False)
class Slot:
    """A place for one sequence. Its cache outlives the sequence: a later request may have the same prefix.

        context of the sequence  [0 ........................ len(context))
        valid in the cache       [0 .......... len(cache))
        to decode next                         [len(cache) .. len(context))

    Written by `SlotManager`.
    """

    cache: SlotCache
    sequence: EngineSequence | None = None
    last_used: int = 0
    n_steps_idle: int = 0  # of other sequences, since its last one has ended
    moved: list[int] = field(default_factory=list)  # what it held last, in the prompt cache now

    @property
    def index(self) -> int:
        return self.cache.index

    @property
    def n_to_decode(self) -> int:
        """The number of committed tokens not yet in the cache: one while generating, more while a prompt is
        processed.

        Also more while accepted tokens are replayed, if the memory could not be cut back precisely, and after
        the context has been shifted.
        """
        return len(self.sequence.context) - len(self.cache.tokens) if self.sequence else 0

    @property
    def is_generating(self) -> bool:
        """Whether the next step reaches the end of the slot's tokens."""
        n = self.n_to_decode
        return n == 1 or (self.is_replaying and n <= MAX_REPLAY + MAX_DEPTH and self.has_read_images)

    @property
    def is_waiting(self) -> bool:
        """Whether a verification is in progress: its sequence then sits out the next steps."""
        return self.sequence is not None and self.sequence.verification is not None

    @property
    def is_replaying(self) -> bool:
        """Whether generated tokens have to be decoded again."""
        return self.cache.traits.replays and self.sequence is not None and self.sequence.n_generated > 0

    @property
    def has_read_images(self) -> bool:
        """Whether only tokens, no images, are left to decode."""
        return self.sequence is not None and len(self.cache) >= self.sequence.images_end

    @property
    def image(self) -> ImageSpan | None:
        """The image whose rows are to be decoded next; None: a token is next."""
        if self.sequence is None or self.has_read_images:
            return None
        return next((image for image in self.sequence.images if image.start == len(self.cache)), None)

    @property
    def is_in_prompt(self) -> bool:
        """Whether the next token to decode belongs to the prompt, or to the tokens left by a
        context shift.
        """
        return self.sequence is not None and len(self.cache) < self.sequence.n_prefill

    def n_useful(self, batch_sizes: BatchSizes | None) -> int:
        """The maximal number of draft tokens that can be committed; in exact mode, in a span of one of
        `batch_sizes`.
        """
        if self.sequence is None or self.n_to_decode > MAX_REPLAY:
            return 0
        n = self.sequence.n_useful
        if n_rollback := self.cache.traits.n_rollback:
            n = min(n, n_rollback)
        if batch_sizes is None:
            return n
        is_last_of_prompt = self.is_in_prompt and not batch_sizes.is_uniform  # which is decoded otherwise
        return 0 if is_last_of_prompt else min(n, batch_sizes.max_draft)

    @property
    def n_required(self) -> int:
        """The number of tokens that the slot needs in the next step, or all rows of an image."""
        n = self.n_to_decode
        if n == 1:
            return 1
        if image := self.image:
            return image.n_rows
        return n if self.is_generating else 1

    @property
    def n_to_next_checkpoint(self) -> int:
        """The number of committed tokens to decode up to the next checkpoint or image, the prompt's end, or
        the last token.
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
    """A place for timing in an idle engine: after `n_cached` tokens of a slot, tokens can be decoded and
    removed.

    Apply `edits` to the cache first.
    """

    slot: int = 0
    n_cached: int = 0
    edits: Sequence[CacheEdit] = ()
