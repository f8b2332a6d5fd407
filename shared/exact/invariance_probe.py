"""Measures, on the loaded model, which batch sizes agree bit for bit, and their cost.

Measuring: a text is decoded in batches of one size, at several lengths of context, over cells that were
trimmed before; the logits of all its tokens are compared. Only measured sizes are used.

Quantized weights hide differences: activations are rounded to 8 bits before each matrix, so a different last
bit shows only where it changes a rounding, about once in ten thousand activations. Therefore small models are
measured with more tokens.

Rehearsing: one text is decoded alone, token by token. Then it is decoded in another slot, with its prompt
split differently, beside busy slots of other lengths, and with drafts that are partly wrong and trimmed. All
logits must be bit-identical.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any

from shared.exact.batch_invariance import MAX_GAP, RESERVE, InvariantSizes
from shared.llama.batch_layout import one_pass
from shared.llama.model import Model
from shared.llama.span import Span

_ESTIMATED = (2, 1, 4, 8, 16, 3)
_ESTIMATE_STEPS = 35
"""The duration of the estimate in steps of a single token, including context and repetitions."""
_NEEDED = (*_ESTIMATED, 32)
"""The sizes without which exact mode is impossible."""
_FURTHER = (5, 6, 7, 12, 24, 9, 10, 20, 28, 64, 48, 14, 15, 18, 40, 56, 36, 11, 13, 17, 21, 22, 30, 25, 27)
_AT_ONCE = 5
"""Further sizes are measured in groups of this many; a group that has begun is finished in any case."""
_WIDE = (64, 128, 48, 96, 80, 112)
"""Sizes for prompts only: longer chunks are hardly faster."""
_MAX_LOGITS = 1 << 24
"""The maximum number of logits of a batch: 64 MB."""
_CONTEXTS = (20, 233)
"""Numbers of tokens before the batch: with the second number, the batch ends in the next block of 256 cells,
the unit of llama.cpp's attention.
"""
_ANCHOR = 16
"""Prompts are read in the class of this size."""
_LARGEST = 32
"""The largest size that is needed; contexts are read in batches of this size."""
_ACTIVATIONS = 250_000
"""The number of activations to compare for each size (tokens times layers times width of a layer); none for
size 1.
"""
_MAX_TOKENS = 240
_REPEATS, _FEW_REPEATS = 7, 3
_MIN_PRICE, _MAX_PRICE = 0.8, 2.0
"""Bounds of plausible times. A step of n tokens takes at least the first factor times as long as a step of
one token, and at most the second factor times as long as n such steps. Otherwise the machine was busy.
"""

_N_PROMPT = 45
_REHEARSED_ACTIVATIONS = 300_000
"""The number of activations to compare in a rehearsal."""
_ANSWER_TOKENS = (24, 200)
"""The minimum and maximum number of tokens of the answer."""
NEEDED_CONTEXT = 96 + RESERVE
"""The number of tokens for which each slot must have room."""
_PIECES = (13, 1, 40)
"""The sizes of the pieces in which the prompt is read the second time."""
_MAX_OTHERS = 3
_OTHERS = 9
"""The number of tokens of the first other slot; each further slot has this many more tokens than the slot
before it.
"""
_WRONG = 2
"""The number of wrong draft tokens in each step, which are trimmed again."""

Clock = Callable[[], float]
Prints = dict[tuple[int, int], bytes]
"""Digests of logits, by the length of the context and the number of the token after the context."""


@dataclass(slots=True)
class SizeReport:
    """Measurements of batch sizes. prints: hashes of their logits. seconds: the time of a pass, for some
    sizes.
    """

    prints: dict[int, Prints] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    wide: list[int] = field(default_factory=list)  # those that read a prompt as the class of `_ANCHOR` does

    def agree(self, one: int, other: int) -> bool:
        """Return whether the tokens that both sizes decoded have equal logits."""
        a, b = self.prints[one], self.prints[other]
        return all(a[key] == b[key] for key in a.keys() & b.keys())

    def class_of(self, anchor: int) -> tuple[int, ...]:
        """Return the sizes that agree with each other and with `anchor`, ascending.

        Round sizes are preferred: kernels process tokens in groups of 4, 8 or 16, and compute the rest
        differently. Sizes that are always measured come first, so that another start chooses the same class.
        """
        chosen = [anchor]
        for size in sorted(self.prints, key=lambda n: (n not in _NEEDED, -_roundness(n))):
            # A single token is multiplied by other kernels; with quantized weights that shows too rarely to
            # measure.
            if 1 < size != anchor != 1 and all(self.agree(size, other) for other in chosen):
                chosen.append(size)
        return tuple(sorted(chosen))

    def batch_sizes(self) -> InvariantSizes | None:
        """Return the sizes to decode in; None: no two sizes agree.

        The choice depends on agreement, not on times, so that another start chooses the same sizes.
        """
        prompt = self.class_of(_ANCHOR)
        answer = prompt
        if prompt[0] > 2:  # noqa: PLR2004 - a single token and a draft of one would be costly
            classes = (self.class_of(size) for size in sorted({*_NEEDED} & self.prints.keys()))
            answer = next((each for each in classes if len({*each} & {*_NEEDED}) > 1), prompt)
        if len(prompt) == 1:
            return None
        prompt, answer = _without_gaps(prompt), _without_gaps(answer)
        all_of_prompts = _without_gaps((*prompt, *sorted(n for n in self.wide if n > prompt[-1])))
        return InvariantSizes(answer, prompt, all_of_prompts[len(prompt) :])

    def describe(self) -> str:
        """Return the classes, for the log."""
        classes = dict.fromkeys(self.class_of(size) for size in sorted(self.prints))
        return " ".join("{" + " ".join(map(str, each)) + "}" for each in classes)

    def price(self, batch_sizes: InvariantSizes) -> float | None:
        """Return the time of the smallest step under `batch_sizes`, divided by the time of a step of one
        token, but at least 1; None: the times are too noisy.
        """
        size = batch_sizes.answer[0]
        ratio = self.seconds[size] / self.seconds[1]
        return max(1.0, ratio) if _MIN_PRICE <= ratio <= _MAX_PRICE * size else None


def estimate_sizes(model: Model, seconds: float, clock: Clock = time.monotonic) -> SizeReport | None:
    """Return measurements that show the price of exact mode, but guarantee nothing; None if they would take
    more than `seconds`.

    Slot 0 must be empty and is left empty.
    """
    measurement = _Measurement(model, clock)
    try:
        return measurement.estimate() if _ESTIMATE_STEPS * measurement.warm_up() <= seconds else None
    finally:
        model.trim(0, 0)


def measure_sizes(model: Model, seconds: float, clock: Clock = time.monotonic) -> SizeReport:
    """Make all required measurements, then optional ones for `seconds`; return all of them.

    Slot 0 must be empty and is left empty.
    """
    measurement = _Measurement(model, clock)
    try:
        measurement.warm_up()
        return measurement.measure(seconds)
    finally:
        model.trim(0, 0)


class _Measurement:
    def __init__(self, model: Model, clock: Clock) -> None:
        self._model = model
        self._clock = clock
        self._report = SizeReport()
        n_compared = min(_MAX_TOKENS, _ACTIVATIONS // model.n_activations)
        self._n_each = -(-n_compared // len(_CONTEXTS))  # after each context, and at least one batch
        n_tokens = min(max(_CONTEXTS) + self._n_each + max(_WIDE), model.n_ctx_slot - RESERVE)
        self._text = [(7919 * i + 31) % model.n_vocab for i in range(n_tokens)]

    def warm_up(self) -> float:
        """Read all weights; returns the seconds of a single token."""
        self._decode(0, 1, n_logits=1)
        self._model.trim(0, 0)
        start = self._clock()
        self._decode(0, 1, n_logits=1)
        once = self._clock() - start
        self._model.trim(0, 0)
        return once

    def estimate(self) -> SizeReport:
        self._n_each = 1
        self._measure(_CONTEXTS[:1], _ESTIMATED)
        return self._timed(_FEW_REPEATS)

    def measure(self, seconds: float) -> SizeReport:
        contexts = [n for n in _CONTEXTS if n + max(_FURTHER) <= len(self._text)]
        self._measure(contexts, _NEEDED)
        deadline = self._clock() + seconds
        for start in range(0, len(_FURTHER), _AT_ONCE):
            if self._clock() > deadline:
                break
            self._measure(contexts, _FURTHER[start : start + _AT_ONCE])
        self._measure_wide(deadline)
        return self._timed(_REPEATS)

    def _measure(self, contexts: Iterable[int], batch_sizes: Iterable[int]) -> None:
        """Measure the sizes after each context, because some kernels differ only after a long text."""
        for context in contexts:
            self._read_context(context)
            for size in batch_sizes:
                if size <= min(self._model.n_ubatch, _MAX_LOGITS // self._model.n_vocab):
                    self._model.trim(0, context)
                    self._measure_size(context, size)

    def _measure_size(self, context: int, size: int) -> None:
        prints = self._report.prints.setdefault(size, {})
        n_compared = self._n_each if size > 1 else 1
        end = min(context + n_compared, len(self._text) - size)
        for at in range(context, max(context + 1, end), size):
            for i, row in enumerate(self._decode(at, size, n_logits=size)):
                prints[context, at - context + i] = _digest(row)

    def _timed(self, n_repeats: int) -> SizeReport:
        """Time a single token and the smallest step alternately, so that a busy moment of the machine affects
        both.
        """
        context, batch_sizes = _CONTEXTS[0], self._report.batch_sizes()
        samples: dict[int, list[float]] = {1: [], batch_sizes.answer[0] if batch_sizes else 1: []}
        self._read_context(context)
        for size in list(samples) * n_repeats:
            self._model.trim(0, context)
            start = self._clock()
            self._decode(context, size, n_logits=size)
            samples[size].append(self._clock() - start)
        self._report.seconds = {size: min(each) for size, each in samples.items()}
        return self._report

    def _measure_wide(self, deadline: float) -> None:
        """Find wide sizes after which tokens have the same logits as after narrow ones."""
        prompt = self._report.class_of(_ANCHOR)
        if _LARGEST not in prompt:
            return
        for size in _WIDE:
            n_text = size + _ANCHOR
            if self._clock() > deadline or n_text > len(self._text) or size > self._model.n_ubatch:
                return
            pieces = [_LARGEST] * (size // _LARGEST) + [_ANCHOR] * (size % _LARGEST // _ANCHOR)
            if self._after([size]) == self._after(pieces):
                self._report.wide.append(size)

    def _after(self, pieces: Sequence[int]) -> list[bytes]:
        """Return digests of the logits after a text that is read in these pieces."""
        self._model.trim(0, 0)
        at = 0
        for size in pieces:
            self._decode(at, size, n_logits=0)
            at += size
        return [_digest(row) for row in self._decode(at, _ANCHOR, n_logits=_ANCHOR)]

    def _read_context(self, n_tokens: int) -> None:
        self._model.trim(0, 0)
        for at in range(0, n_tokens, _LARGEST):
            self._decode(at, min(_LARGEST, n_tokens - at), n_logits=0)

    def _decode(self, start: int, size: int, n_logits: int) -> Any:
        (rows,) = self._model.decode(one_pass([Span(0, start, self._text[start : start + size], n_logits)]))
        return rows


def rehearse(model: Model, batch_sizes: InvariantSizes) -> InvariantSizes | None:
    """Use `batch_sizes`, or a variant without joint passes, if they pass a rehearsal; return the sizes in
    use.

    None: neither passed. All slots must be empty and are left empty.
    """
    for tried in dict.fromkeys((batch_sizes, replace(batch_sizes, joins=False))):
        model.batch_sizes = tried
        if _alone(model, tried) == _in_company(model, tried):
            return tried
    model.batch_sizes = None
    return None


def _alone(model: Model, batch_sizes: InvariantSizes) -> list[bytes]:
    """Return digests of the answer, decoded in the smallest size."""
    text, size = _text(model, 0), batch_sizes.answer[0]
    prints = _digests(model, [_prompt(0, 0, text[:_N_PROMPT])], 0)
    for at in range(_N_PROMPT, len(text), size):
        tokens = text[at : at + size]
        prints += _digests(model, [Span(0, at, tokens, len(tokens))], 0)
    model.trim(0, 0)
    return prints


def _in_company(model: Model, batch_sizes: InvariantSizes) -> list[bytes]:
    slot = model.n_slots - 1
    for number, other in enumerate(_other_slots(slot), 1):
        _digests(model, [_prompt(other, 0, _text(model, number)[: _OTHERS * number])], 0)
    prints = _read_in_pieces(model, slot)
    prints += _answer_with_drafts(model, slot, batch_sizes)
    for each in range(model.n_slots):
        model.trim(each, 0)
    return prints


def _read_in_pieces(model: Model, slot: int) -> list[bytes]:
    text, at, prints = _text(model, 0), 0, []
    for n in cycle(_PIECES):
        piece = text[at : min(at + n, _N_PROMPT)]
        prints = _digests(model, [*_others(model, slot), _prompt(slot, at, piece)], -1)
        at += len(piece)
        if at == _N_PROMPT:
            break
    return prints


def _answer_with_drafts(model: Model, slot: int, batch_sizes: InvariantSizes) -> list[bytes]:
    """Return digests of the answer, decoded with drafts of right and then wrong tokens, in steps of many
    sizes.
    """
    text, at, prints = _text(model, 0), _N_PROMPT, []
    for n_right in cycle(range(1, max(2, min(_N_PROMPT, batch_sizes.answer[-1]) - _WRONG))):
        right = text[at : at + n_right]
        wrong = text[1 : 1 + min(_WRONG, batch_sizes.answer[-1] - len(right))]
        span = Span(slot, at, [*right, *wrong], len(right) + len(wrong))
        prints += _digests(model, [*_others(model, slot), span], -1)[: len(right)]
        at += len(right)
        model.trim(slot, at)
        if at == len(text):
            break
    return prints


def _other_slots(slot: int) -> range:
    return range(max(0, slot - _MAX_OTHERS), slot)


def _others(model: Model, slot: int) -> list[Span]:
    """Return a span of one token for each other slot; the next call trims these tokens."""
    spans = []
    for number, other in enumerate(_other_slots(slot), 1):
        model.trim(other, _OTHERS * number)
        spans.append(Span(other, _OTHERS * number, _text(model, number)[:1], 1))
    return spans


def _digests(model: Model, spans: Sequence[Span], index: int) -> list[bytes]:
    """Return digests of the logits of one of the spans."""
    return [_digest(row) for row in model.decode(spans)[index]]


def _prompt(slot: int, at: int, tokens: Sequence[int]) -> Span:
    return Span(slot, at, tokens, 1, is_prompt=True)


def _text(model: Model, number: int) -> list[int]:
    minimum, maximum = _ANSWER_TOKENS
    n_answer = min(max(minimum, _REHEARSED_ACTIVATIONS // model.n_activations), maximum)
    n_tokens = min(_N_PROMPT + n_answer, model.n_ctx_slot - RESERVE)
    return [(7919 * i + 101 * number + 31) % model.n_vocab for i in range(n_tokens)]


def _digest(row: Any) -> bytes:
    return hashlib.blake2b(row.tobytes(), digest_size=8).digest()


def _roundness(size: int) -> int:
    """Return the largest power of two that divides `size`."""
    return size & -size


def _without_gaps(batch_sizes: Sequence[int]) -> tuple[int, ...]:
    """Return `batch_sizes` up to the first gap above MAX_GAP."""
    kept = [batch_sizes[0]]
    for size in batch_sizes[1:]:
        if size - kept[-1] > MAX_GAP:
            break
        kept.append(size)
    return tuple(kept)
