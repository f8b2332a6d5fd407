"""Batch invariance: passes in which logits depend only on the tokens. Imports no native library.

llama.cpp chooses its kernels by the number of tokens that are decoded together, the batch size. Sizes whose
logits are bit-identical form a class. The classes depend on the weights, the options and the CPU
(`shared.exact.invariance_probe` measures them). `InvariantSizes` has two of these classes, for the tokens of
prompts and for generated tokens. `invariant_passes` splits and pads a batch so that each token is decoded in
a size of its class.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import ClassVar

from shared.llama.span import Pass, Span, SpanPart

MAX_GAP = 32
"""The largest gap between two sizes of a class: the most padding that a single part needs."""
RESERVE = 64
"""The number of cells of each slot that only padding may occupy: the most padding that `invariant_passes`
adds to a span.
"""


@dataclass(frozen=True, slots=True)
class InvariantSizes:
    """Batch sizes per slot with identical logits, ascending: for generated tokens and for prompts.

    wide: further sizes for prompt tokens that need no logits. Gaps are at most `MAX_GAP`. joins: adjacent
    slots may share a pass if the size of each part and the size of the whole pass are among the sizes;
    otherwise each slot takes a pass of its own.
    """

    answer: tuple[int, ...]
    prompt: tuple[int, ...]
    wide: tuple[int, ...] = ()
    joins: bool = True
    n_reserve: ClassVar[int] = RESERVE

    @property
    def is_uniform(self) -> bool:
        return self.answer == self.prompt

    @property
    def max_draft(self) -> int:
        return self.answer[-1] - 1

    def n_padding(self, n_tokens: int) -> int:
        return _smallest(self.answer, n_tokens) - n_tokens

    def passes(self, spans: Sequence[Span]) -> list[Pass]:
        return invariant_passes(spans, self)

    def narrow(self, span: Span) -> tuple[int, ...]:
        """Return the batch sizes in which the logits of `span` may be computed."""
        return self.prompt if span.is_prompt else self.answer

    def of(self, span: Span) -> tuple[int, ...]:
        """Return the batch sizes in which `span` may be decoded."""
        return (*self.prompt, *self.wide) if span.is_prompt else self.answer


def invariant_passes(spans: Sequence[Span], sizes: InvariantSizes) -> list[Pass]:
    """Return the passes that decode `spans`; parts of one span are in successive passes.

    All parts of a pass have the same size and number of outputs. llama.cpp computes the last layer only for
    tokens with outputs, so their number is a batch size, too.
    """
    cut = (_parts(number, span, sizes.of(span)) for number, span in enumerate(spans))
    rounds = ([part for part in each if part] for each in zip_longest(*cut))
    return [_with_outputs(together, sizes) for each in rounds for together in _joined(each, sizes)]


def _parts(number: int, span: Span, sizes: Sequence[int]) -> Iterator[SpanPart]:
    n_tokens, largest = len(span.tokens), sizes[-1]
    for at in range(0, n_tokens, largest):
        end = min(at + largest, n_tokens)
        n_logits = min(end - at, max(0, span.n_logits - (n_tokens - end)))
        part = Span(span.slot, span.start + at, span.tokens[at:end], n_logits, is_prompt=span.is_prompt)
        yield SpanPart(number, part, _smallest(sizes, end - at) - (end - at))


def _joined(parts: Sequence[SpanPart], sizes: InvariantSizes) -> Iterator[Pass]:
    """Yield passes of parts that may be decoded together, answers before prompts, which may be long."""
    together: Pass = []
    for part in sorted(parts, key=lambda part: (part.span.is_prompt, part.span.slot)):
        if wider := _with(together, part, sizes):
            together = wider
            continue
        yield together
        together = [part]
    yield together


def _with(together: Pass, part: SpanPart, sizes: InvariantSizes) -> Pass | None:
    """Return the pass with one more part, all padded to one size; None if the part needs its own pass."""
    if not together:
        return [part]
    if not (sizes.joins and _are_alike(together[-1], part)):
        return None
    parts = [*together, part]
    size = _size_of_each(sizes.narrow(part.span), max(each.size for each in parts), len(parts))
    if size is None or size - min(len(each.span.tokens) for each in parts) > RESERVE:
        return None
    return [each._replace(n_padding=size - len(each.span.tokens)) for each in parts]


def _are_alike(last: SpanPart, part: SpanPart) -> bool:
    """Return whether both parts may be in one pass; parts of prompts only if they have the same size."""
    one, other = last.span, part.span
    if one.is_prompt != other.is_prompt or bool(one.n_logits) != bool(other.n_logits):
        return False
    return other.slot == one.slot + 1 and (not one.is_prompt or last.size == part.size)


def _with_outputs(together: Pass, sizes: InvariantSizes) -> Pass:
    if together[0].span.n_logits == 0:
        return together
    needed = max(part.n_padding + part.span.n_logits for part in together)
    n_outputs = _size_of_each(sizes.narrow(together[0].span), needed, len(together))
    assert n_outputs, f"no number of logits in {sizes} fits"
    return [part._replace(n_outputs=n_outputs) for part in together]


def _size_of_each(sizes: Sequence[int], minimum: int, n_parts: int) -> int | None:
    """Return the smallest size for each of `n_parts` parts of one pass; None: there is none."""
    return next((size for size in sizes if size >= minimum and size * n_parts in sizes), None)


def _smallest(sizes: Sequence[int], n_tokens: int) -> int:
    """Return the smallest size that holds `n_tokens` tokens."""
    return next(size for size in sizes if size >= n_tokens)
