"""Divides spans into passes, each of which is one call of llama_decode, and pads them.

No other module decides this: a scheduler plans a `Layout`, and `Model.decode` executes it. Imports no native
library.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, overload

from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.llama.span import Pass, Span, SpanPart

TILE = 64
"""The number of tokens of a batch that llama.cpp's flash attention computes together on a CPU."""
_MIN_CELLS = 1024
"""From this number of cells on, another pass over the weights costs less than attention by tiles. Measured:
both cost the same at 450 to 800 cells.
"""


class BatchSizes(Protocol):
    """The batch sizes in which all tokens are decoded, for a model that is restricted to certain sizes.

    Generated tokens and prompts may be decoded in different sizes.
    """

    @property
    def n_reserve(self) -> int:
        """The number of cells of each slot that only padding may occupy."""

    @property
    def is_uniform(self) -> bool:
        """True if a generated token's logits keep their bits when the token is read again in a prompt."""

    @property
    def max_draft(self) -> int:
        """The maximum number of draft tokens of a sequence in one pass."""

    def n_padding(self, n_tokens: int) -> int:
        """Return the number of padding tokens after `n_tokens` tokens of a sequence. Draft tokens can replace
        padding at no cost.
        """

    def passes(self, spans: Sequence[Span]) -> list[Pass]:
        """Return the passes that decode `spans`; parts of one span are in successive passes."""


@dataclass(frozen=True, slots=True)
class LayoutRules:
    """The properties of a model that determine the passes.

    n_batch: the maximum number of tokens in a pass. n_ctx_sequence: the maximum number of tokens in a slot,
    padding included. own_cells: slots do not share one pool of cells. batch_sizes: the allowed sizes; None:
    any size. tiles_attention: flash attention compares tokens of several sequences with the cells of all
    these sequences.
    """

    n_batch: int
    n_ctx_sequence: int
    traits: MemoryTraits = PLAIN
    own_cells: bool = False
    batch_sizes: BatchSizes | None = None
    tiles_attention: bool = False

    @property
    def splits_lengths(self) -> bool:
        """True if llama.cpp divides a pass into ubatches in which each slot has the same number of tokens."""
        return self.own_cells or self.traits.equal_lengths

    @property
    def pads(self) -> bool:
        """True if drafts are padded to equal lengths where that saves a ubatch and causes no replay."""
        return self.splits_lengths and self.traits.n_rollback != 0

    @property
    def rolls_states_back(self) -> bool:
        """True if tokens of the last decode can be removed from recurrent states."""
        return bool(self.traits.n_rollback) and self.traits.equal_lengths


@dataclass(slots=True)
class Layout(Sequence[Span]):
    """Spans, and the passes that compute them. Iterates over its spans.

    can_roll_back: the slots from which some of the decoded tokens can be removed afterwards. n_ubatches: how
    often llama.cpp reads all weights if it divides passes into ubatches only where lengths differ.
    """

    spans: list[Span]
    passes: list[Pass]
    can_roll_back: frozenset[int]
    n_ubatches: int

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> list[Span]: ...
    def __getitem__(self, index: int | slice) -> Span | list[Span]:
        return self.spans[index]

    def __len__(self) -> int:
        return len(self.spans)

    def __iter__(self) -> Iterator[Span]:
        return iter(self.spans)

    @property
    def n_tokens(self) -> int:
        """The number of computed tokens, padding included."""
        return sum(part.size for each in self.passes for part in each)


def layout(spans: Sequence[Span], rules: LayoutRules) -> Layout:
    """Divide `spans` (at least one, and at most one of each slot) into passes."""
    if any([span.image for span in spans]):  # noqa: C419 - a list is faster than a generator
        return _images_first(spans, rules)
    if rules.batch_sizes:
        return _layout(spans, rules.batch_sizes.passes(spans), rules)
    parts = [SpanPart(number, span) for number, span in enumerate(spans)]
    if len(spans) > 1 and rules.pads:
        passes = [parts] if rules.traits.can_trim else _prompts_first(parts)
        return _layout(spans, [_padded(each, rules) for each in passes], rules)
    is_apart = rules.tiles_attention and _is_read_apart(spans)
    return _layout(spans, _prompts_first(parts) if is_apart else [parts], rules)


def one_pass(spans: Sequence[Span]) -> Layout:
    """Return all `spans` in one pass, without padding."""
    parts = [SpanPart(number, span) for number, span in enumerate(spans)]
    return Layout(list(spans), [parts], frozenset(span.slot for span in spans), 1)


def _images_first(spans: Sequence[Span], rules: LayoutRules) -> Layout:
    """Lay out images before other spans: llama.cpp reads either tokens or embeddings in a pass.

    No part of an image is rolled back.
    """
    images = [piece for number, span in enumerate(spans) for piece in _pieces(number, span, rules.n_batch)]
    numbers = [number for number, span in enumerate(spans) if not span.image]
    if not numbers:
        return Layout(list(spans), images, frozenset(), len(images))
    rest = layout([spans[number] for number in numbers], rules)
    passes = [[part._replace(number=numbers[part.number]) for part in each] for each in rest.passes]
    return Layout(list(spans), images + passes, rest.can_roll_back, len(images) + rest.n_ubatches)


def _pieces(number: int, span: Span, n_batch: int) -> list[Pass]:
    """Return the passes of an image; none for other spans."""
    if not span.image:
        return []
    cuts = range(0, len(span.tokens), n_batch)
    rows = ((at, span.tokens[at : at + n_batch]) for at in cuts)
    pieces = (Span(span.slot, span.start + at, each, 0, span.is_prompt, span.image) for at, each in rows)
    return [[SpanPart(number, piece)] for piece in pieces]


def _layout(spans: Sequence[Span], passes: list[Pass], rules: LayoutRules) -> Layout:
    n_ubatches = [1] * len(passes)
    if rules.splits_lengths:
        n_ubatches = [len({part.size for part in each}) for each in passes]
    if rules.rolls_states_back:
        can_roll_back = _slots_in_last_ubatch(passes[-1], n_ubatches[-1], rules)
    else:
        can_roll_back = frozenset([span.slot for span in spans])
    return Layout(list(spans), passes, can_roll_back, sum(n_ubatches))


def _slots_in_last_ubatch(last: Pass, n_ubatches: int, rules: LayoutRules) -> frozenset[int]:
    """Return the slots whose last tokens can be rolled back: the slots of the last pass, if it is one ubatch.

    A ubatch moves the states of other sequences (`llama_memory_recurrent::find_slot`), but not their states
    after earlier tokens, to which a rollback returns.
    """
    slots = frozenset(part.span.slot for part in last)
    # With cells of their own, only adjacent slots are in one ubatch.
    is_one = n_ubatches == 1 and not (rules.own_cells and max(slots) - min(slots) >= len(slots))
    return slots if is_one else frozenset()


def _prompts_first(parts: Pass) -> list[Pass]:
    """Return a pass of the prompts, then a pass of the other spans, which may be rolled back; no empty
    passes.
    """
    prompts = [part for part in parts if not part.span.is_verified]
    return [each for each in (prompts, [part for part in parts if part.span.is_verified]) if each]


def _is_read_apart(spans: Sequence[Span]) -> bool:
    """Return whether to decode prompts apart from other spans, if flash attention runs on a CPU in one pool.

    A tile of tokens is compared with the cells of every sequence that has a token in it. In one pass with a
    prompt, a generated token costs as much attention as a tile of tokens.
    """
    n_prompt = sum(len(span.tokens) for span in spans if not span.is_verified)
    n_cells = sum(span.start for span in spans if span.is_verified)
    return n_prompt > 0 and n_cells >= _MIN_CELLS and sum(len(span.tokens) for span in spans) >= TILE


def _padded(parts: Pass, rules: LayoutRules) -> Pass:
    """Return the parts in the order of slots, padded to the longest draft, because every ubatch reads all
    weights.

    llama.cpp starts a new ubatch where slot numbers are not consecutive. Prompts are longer than drafts; the
    rest of a prompt is worth a ubatch of its own. No padding is added where the batch or a slot is full.
    """
    ordered = sorted(parts, key=lambda part: part.span.slot)
    spans = [part.span for part in ordered]
    lengths = [len(span.tokens) for span in spans]
    longest = max((len(span.tokens) for span in spans if span.is_verified), default=0)
    added = [
        longest - length if length < longest and span.start + longest <= rules.n_ctx_sequence else 0
        for span, length in zip(spans, lengths, strict=True)
    ]
    if not any(added) or sum(lengths) + sum(added) > rules.n_batch:
        return ordered
    return [part._replace(n_padding=n) for part, n in zip(ordered, added, strict=True)]
