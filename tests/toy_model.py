"""A toy model in place of llama.cpp's, with its own records of its cache, its sampler and its grammars.

It is a pure function of the tokens in its cache, over a vocabulary of N_VOCAB tokens.
"""

import contextlib
import functools
import itertools
import pickle
import random
from collections import Counter

import numpy as np

from lead.engine.commands import Submit
from lead.engine.target import Target
from shared.errors import KvCacheFullError, PendingAnswerError
from shared.exact.batch_invariance import RESERVE, InvariantSizes
from shared.image_span import row_identities
from shared.llama.batch_layout import Layout, LayoutRules, layout
from shared.llama.memory_traits import PLAIN
from shared.llama.positions import Positions
from shared.sampling.call_grammars import CallGrammars
from shared.sampling.constrained import ConstrainedSampler
from shared.sampling.filters import NativeFilters
from shared.sampling.followed_calls import FreeUntilCall
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler, needs_filters

N_VOCAB = 24
END_TOKENS = frozenset({3, 17})
GREEDY = SamplingParameters(seed=0, temperature=0)


@functools.cache
def _toy_rows() -> np.ndarray:
    """The logits of 8,192 texts. Drawing them for each text would take longer than the engine's own step."""
    rows = np.random.default_rng(1).normal(size=(1 << 13, N_VOCAB)).astype(np.float32) * 2
    rows[:, list(END_TOKENS)] -= 2
    return rows


def toy_logits(text_hash: int) -> np.ndarray:
    """The logits after a text: peaked, as a real model's logits. End tokens are rare."""
    return _toy_rows()[text_hash * 0x9E3779B97F4A7C15 % (1 << 64) >> 51]


def extend_hash(text_hash: int, token: int, n_skipped: int = 0) -> int:
    """Return the hash with one more token. n_skipped: how much less its position is than its row."""
    return (text_hash * 0x5851F42D4C957F2D + token + 1 + (n_skipped << 32)) % (1 << 64)


def as_answer(token: int) -> int:
    """The token for which a generated token counts if prompts are decoded in other batch sizes."""
    return token + N_VOCAB


class FakeTarget(Target):
    """A deterministic model that keeps its own records, and raises AssertionError if a caller's differ.

    `blur` makes it differ from the model without blur: as a draft model it is then only sometimes right. It
    refuses
    what its `traits` do not allow, as llama.cpp should. It notices when llama.cpp would compute wrong logits
    without
    an error: see `_is_wrong`. own_cells: slots do not share a pool of cells. batch_sizes: as it decodes. A
    generated
    token that was read as part of a prompt is then another token.
    """

    def __init__(
        self,
        n_slots=1,
        n_ctx=10_000,
        n_batch=64,
        *,
        n_window=10_000,
        blur=0.0,
        traits=PLAIN,
        own_cells=False,
        batch_sizes=None,
        copies_late=False,
    ):
        self.n_vocab, self.n_batch, self.n_ctx, self.n_window = N_VOCAB, n_batch, n_ctx, n_window
        self.slots: list[list[int]] = [[] for _ in range(n_slots)]
        self.steps: list[list[int]] = []  # for each decode, how many tokens of each slot
        self.stored: dict[int, tuple] = {}  # tokens, their hashes, whether they are wrong
        self._hashes = [[0] for _ in range(n_slots)]  # hashes[slot][n]: of the first n tokens
        self._cells: list[list[int]] = [[] for _ in range(n_slots)]  # copied tokens share their cells
        self._n_cells_written = 0
        self._blur = blur
        self.traits = traits
        self._own_cells, self._batch_sizes, self._copies_late = own_cells, batch_sizes, copies_late
        self._padding: dict[int, int] = {}  # tokens at the end of slots, until the next decode
        self._last: dict[int, int] = {}  # slots of the last pass, until they are cut back, and its tokens
        self._packed: dict[int, bytes] = {}  # positions, by the keys of what is stored
        self._saved: dict[int, tuple] = {}  # slot, state and cells, by their place
        self._wrong: set[int] = set()
        self._written: list[list[int]] = [[] for _ in range(n_slots)]  # hashes, in cells of their own
        self._copies: list[tuple[int, int]] = []  # of such cells, which the next decode begins with
        self._reserved: dict[int, bytearray] = {}  # snapshots that are being read
        self.n_restored = self.n_loaded = 0
        self._rows = np.empty((0, N_VOCAB), np.float32)
        self._positions = Positions(n_slots)  # as `shared.llama.model.Model` has it
        self.n_images = 0

    @property
    def layout_rules(self):
        n_ctx, own_cells = min(self.n_ctx, self.n_window), self._own_cells
        return LayoutRules(
            self.n_batch, n_ctx, self.traits, own_cells=own_cells, batch_sizes=self._batch_sizes
        )

    def decode(self, spans):
        self._rows[:] = np.nan  # what the last decode returned were views
        planned = spans if isinstance(spans, Layout) else layout(spans, self.layout_rules)
        assert sum(len(span.tokens) for span in planned if not span.image) <= self.n_batch
        assert max(Counter(span.slot for span in planned).values()) == 1, "two spans of one slot"
        self._check_layout(planned)
        for slot in list(self._padding):
            self._cut_padding(slot)
        self._finish_copies()
        self._last.clear()
        rows = [[] for _ in planned]
        for n_done, together in enumerate(planned.passes):
            try:
                self._decode_pass(together, rows)
            except KvCacheFullError as error:
                lost = [part.span.slot for done in planned.passes[:n_done] for part in done]
                for slot in lost:  # what was decoded cannot be taken back
                    self.trim(slot, 0)
                raise KvCacheFullError(str(error), lost) from error
        self.steps.append([len(span.tokens) for span in planned])
        self._rows = np.array([row for span_rows in rows for row in span_rows]).reshape(-1, N_VOCAB)
        return np.split(self._rows, np.cumsum([len(span_rows) for span_rows in rows])[:-1])

    def trim(self, slot, n_keep):
        n_held = len(self.slots[slot])
        if n_keep == n_held == 0:
            return
        assert 0 <= n_keep < n_held, f"slot {slot} cannot be cut back to {n_keep} tokens"
        self._roll_back(slot, n_keep, self._padding.pop(slot, 0) + n_held - n_keep)
        self._forget_saved(slot, n_keep)
        self._positions.trimmed(slot, n_keep)
        del self.slots[slot][n_keep:]
        del self._hashes[slot][n_keep + 1 :]
        del self._cells[slot][n_keep:]

    def copy(self, source_slot, slot, n_keep):
        """Copy a slot. A recurrent state or a window is the source's, so the right one has to be loaded."""
        n_held = len(self.slots[source_slot])
        assert not self.slots[slot], f"slot {slot} is not empty"
        assert 0 < n_keep <= n_held, f"slot {source_slot} has no {n_keep} tokens"
        self.slots[slot] = self.slots[source_slot][:n_keep]
        self._hashes[slot] = self._hashes[source_slot][: n_keep + 1]
        self._cells[slot] = self._cells[source_slot][:n_keep]
        self._positions.copied(source_slot, slot, n_keep)
        if self._own_cells:
            assert self.traits.can_trim, "such a copy cannot be cut back"
            self._copies.append((source_slot, slot))
            if not self._copies_late:
                self._finish_copies()
        if source_slot in self._wrong or not (self.traits.can_trim or n_keep == n_held):
            self._wrong.add(slot)

    def store(self, slot, snapshot):
        if snapshot.kind == "device":
            assert snapshot.key // self.traits.n_step_checkpoints == slot
            self._saved[snapshot.key] = (slot, *self._state(slot), list(self._cells[slot]))
            return
        assert snapshot.key not in self.stored
        self._cut_padding(slot)
        tokens, hashes, is_wrong = self._state(slot)
        if snapshot.kind == "state" or not self.traits.can_trim:
            assert (snapshot.start, snapshot.end) == (0, len(tokens)), f"slot {slot} cannot be cut"
        assert 0 <= snapshot.start < snapshot.end <= len(tokens), f"slot {slot} has no {snapshot}"
        tokens, hashes = tokens[snapshot.start : snapshot.end], hashes[snapshot.start : snapshot.end + 1]
        self._packed[snapshot.key] = self._positions.packed(slot, snapshot.start, snapshot.end)
        self.stored[snapshot.key] = tokens, hashes, is_wrong

    def restore(self, slot, snapshot, n_keep):
        match snapshot.kind:
            case "device":
                self.n_restored += 1
                owner, *state, cells = self._saved[snapshot.key]
                self._positions.copied(owner, slot, snapshot.end)
                self._set_state(slot, tuple(state), cells)
                self._forget_saved(slot, len(self.slots[slot]))
            case "state":
                self.n_loaded += 1
                tokens = self.stored[snapshot.key][0]
                assert self.slots[slot][: len(tokens)] == tokens, "the slot holds another text"
                self._positions.trimmed(slot, len(tokens))
                self._forget_saved(slot, len(tokens))
                self._set_state(slot, self.stored[snapshot.key], self._cells[slot][: len(tokens)])
            case "text":
                self._load_text(slot, snapshot, n_keep)
        assert len(self.slots[slot]) == n_keep

    def _load_text(self, slot, snapshot, n_keep):
        """All cells of the text are taken before the cells beyond `n_keep` are freed."""
        tokens, hashes, is_wrong = self.stored[snapshot.key]
        start = len(self.slots[slot])
        assert start == snapshot.start, f"slot {slot} holds {start} tokens, not {snapshot.start}"
        assert self._hashes[slot][-1] == hashes[0], f"slot {slot} does not hold what is before this part"
        assert start < n_keep <= snapshot.end, f"{n_keep} of {start} to {snapshot.end} tokens"
        assert self.traits.can_trim or n_keep == snapshot.end, "such a text cannot be cut back"
        self.n_loaded += 1
        self._cells[slot] += range(self._n_cells_written, self._n_cells_written + len(tokens))
        self._n_cells_written += len(tokens)
        assert self.n_cells_used <= self.n_ctx, "more tokens than the cache has cells"
        del self._cells[slot][n_keep:]
        self._positions.unpack(slot, self._packed[snapshot.key])
        self._positions.loaded(slot, snapshot.key, n_keep)
        self.slots[slot] += tokens[: n_keep - start]
        self._hashes[slot] += hashes[1 : n_keep - start + 1]
        self._written[slot][start:] = self._hashes[slot][start + 1 :]
        self._last.pop(slot, None)
        if is_wrong:
            self._wrong.add(slot)

    def forget(self, key):
        del self.stored[key]
        self._packed.pop(key, None)

    def lend(self, key):
        if key not in self.stored:
            return None
        return memoryview(pickle.dumps((self.stored[key], self._packed[key])))

    def reserve(self, key, size):
        self._reserved[key] = bytearray(size)
        return memoryview(self._reserved[key])

    def take_back(self, key):
        """Content that is not what was stored is not examined."""
        if content := self._reserved.pop(key, None):
            with contextlib.suppress(pickle.UnpicklingError, EOFError):
                self.stored[key] = [], [], True
                self.stored[key], self._packed[key] = pickle.loads(content)  # noqa: S301 - of `lend`

    @property
    def n_stored(self):
        return len(self.stored)

    @property
    def n_cells_used(self):
        saved = (cells for *_, cells in self._saved.values())
        return len(set().union(*self._cells, *saved)) + sum(self._padding.values())

    # What a slot holds

    def _is_wrong(self, slot):
        """Return whether the slot's memory does not match its tokens, which llama.cpp does not report."""
        if not self._own_cells or slot in self._wrong:
            return slot in self._wrong
        return self._written[slot][: len(self.slots[slot])] != self._hashes[slot][1:]

    def _state(self, slot):
        return list(self.slots[slot]), list(self._hashes[slot]), self._is_wrong(slot)

    def _set_state(self, slot, state, cells):
        self._last.pop(slot, None)
        self._padding.pop(slot, None)
        tokens, hashes, is_wrong = state
        self.slots[slot], self._hashes[slot], self._cells[slot] = list(tokens), list(hashes), list(cells)
        self._wrong.discard(slot)
        if is_wrong:
            self._wrong.add(slot)

    def _forget_saved(self, slot, n_keep):
        for place, (owner, tokens, *_) in list(self._saved.items()):
            if owner == slot and len(tokens) > n_keep:
                del self._saved[place]

    def _roll_back(self, slot, n_keep, n_removed):
        """A recurrent state can be taken back once, and only if no pass over other slots has followed."""
        n_last = self._last.pop(slot, 0)
        if n_keep == 0:
            self._wrong.discard(slot)
        elif self.traits.n_rollback is not None:
            assert n_removed <= self.traits.n_rollback, "too much to roll back"
            assert self.traits.equal_lengths or n_removed < n_last, "its window is lost"
            if n_removed >= n_last:
                self._wrong.add(slot)

    def _cut_padding(self, slot):
        if n_padding := self._padding.pop(slot, 0):
            self._roll_back(slot, len(self.slots[slot]), n_padding)

    def _finish_copies(self):
        for source, slot in self._copies:
            self._written[slot] = list(self._written[source])
        self._copies.clear()

    # Decoding, as `shared.llama.model.Model` does it

    def _check_layout(self, planned):
        """Check that every token is decoded once and in order, in passes that the model can compute."""
        tokens = [[] for _ in planned]
        for together in planned.passes:
            assert sum(part.size for part in together) <= self.n_batch or self._batch_sizes, (
                "more than a batch"
            )
            for number, span, n_padding, _ in together:
                whole = planned[number]
                assert span.slot == whole.slot
                assert span.start == whole.start + len(tokens[number]), "not in order"
                tokens[number] += span.tokens
                end = span.start + len(span.tokens) + n_padding
                n_more = RESERVE if self._batch_sizes else 0
                assert end <= self.layout_rules.n_ctx_sequence + n_more, "more tokens than the slot has cells"
                assert not span.image or len(together) == 1, "an image beside others"
                if self._batch_sizes:
                    assert len(span.tokens) + n_padding in self._batch_sizes.of(span), (
                        "in a size that differs"
                    )
        assert tokens == [list(span.tokens) for span in planned]

    def _decode_pass(self, together, rows):
        n_tokens = sum(len(part.span.tokens) for part in together)
        n_padding = sum(part.n_padding for part in together)
        if not self._own_cells:
            n_free = self.n_ctx - self.n_cells_used
            assert n_tokens <= n_free, "more tokens than the cache has cells"
            if n_tokens + n_padding > n_free:
                raise KvCacheFullError("no room for padding")
        for part in together:
            rows[part.number] += self._decode_span(part.span)
        if not self._batch_sizes:  # cells in reserve
            self._padding = {part.span.slot: part.n_padding for part in together if part.n_padding}
        lengths = {part.span.slot: part.size for part in together}
        self._last |= lengths
        if self.traits.equal_lengths and self.traits.n_rollback:
            self._last = last_pass(lengths, 1 + self.traits.n_rollback, adjacent=self._own_cells)

    def _decode_span(self, span):
        slot, cache, hashes = span.slot, self.slots[span.slot], self._hashes[span.slot]
        assert span.tokens, "an empty span"
        n_skipped = self._check_rows(span)
        assert span.start == len(cache), f"slot {slot}: span at {span.start}, cache ends at {len(cache)}"
        assert 0 <= span.n_logits <= len(span.tokens)
        assert len(cache) + len(span.tokens) <= self.n_window, "more than the model can see"
        assert not self._is_wrong(slot), f"slot {slot} holds the memory of other tokens than its own"
        is_answer = self._batch_sizes is not None and not (span.is_prompt or self._batch_sizes.is_uniform)
        for token in span.tokens:
            cache.append(token)
            self._cells[slot].append(self._n_cells_written)
            self._n_cells_written += 1
            hashes.append(extend_hash(hashes[-1], as_answer(token) if is_answer else token, n_skipped))
        self._written[slot][span.start :] = hashes[span.start + 1 :]
        first = len(hashes) - span.n_logits
        return [self._row(text_hash) for text_hash in hashes[first:]]

    def _check_rows(self, span):
        """Check a span; return by how much its positions are less than its rows."""
        image = span.image
        if image is None:
            assert all(0 <= token < N_VOCAB for token in span.tokens), f"no such tokens: {span.tokens}"
            return span.start - self._positions.position_of(span.slot, span.start)
        rows, first = row_identities(image.key, image.n_rows), span.start - image.start
        assert list(span.tokens) == list(rows[first : first + len(span.tokens)]), "rows of another image"
        assert len(span.tokens) == image.n_rows or not image.whole, "an image that has to be whole"
        n_skipped = image.start - self._positions.position_of(span.slot, image.start)
        if first == 0:
            self.n_images += 1
            self._positions.add_image(span.slot, image)
        return n_skipped

    def _row(self, text_hash):
        row = toy_logits(text_hash)
        return row + self._blur * toy_logits(text_hash ^ 0xB10) if self._blur else row


def last_pass(lengths: dict[int, int], n_end: int, *, adjacent: bool) -> dict[int, int]:
    """The slots in the last of the passes over spans of these lengths, and their tokens in it.

    As llama.cpp does it (`llama_batch_allocr::split_equal`): in a pass each slot has the same number of
    tokens, and the last `n_end` of a span stay together. adjacent: slots in a pass follow each other.
    """
    left, done = dict(lengths), {}
    while left:
        first = next(iter(left))
        slots = [slot for i, slot in enumerate(left) if not adjacent or slot == first + i]
        n_each = min(left[slot] for slot in slots)
        fitting = itertools.takewhile(lambda slot: not 0 < left[slot] - n_each < n_end, slots)  # noqa: B023
        done = dict.fromkeys(fitting, n_each) or {first: left[first]}
        left = {slot: n_left for slot, n in left.items() if (n_left := n - done.get(slot, 0))}
    return done


class FailingTarget(FakeTarget):
    """At random, has no room for a batch. It always has room for a single token or an image."""

    def __init__(self, *args, rng: random.Random, rate: float, **kwargs):
        super().__init__(*args, **kwargs)
        self._rng, self._rate = rng, rate
        self.n_failed = 0

    def decode(self, spans):
        n_min = sum(1 if span.image else len(span.tokens) for span in spans)
        if n_min > 1 and self._rng.random() < self._rate:
            self.n_failed += 1
            raise KvCacheFullError("no room")
        return super().decode(spans)


class ToyGrammar:
    """The remainders of the tokens by 3 are 0, 1, 2, 0, 1, 2, … or backwards. It may end after 4 tokens."""

    is_ready = True

    def __init__(self, taken=(), n_beyond=0):
        self._taken = list(taken)
        self._n_beyond = n_beyond

    def allows(self, tokens):
        return [self._n_beyond > 0 or self._allows(token) for token in tokens]

    def _allows(self, token):
        n = len(self._taken)
        if token in END_TOKENS:
            return n >= 4
        wanted = {n % 3, -n % 3} if n < 2 else {(2 * self._taken[-1] - self._taken[-2]) % 3}
        return token % 3 in wanted

    def allowed(self):
        return np.array([token for token in range(N_VOCAB) if self._allows(token)], np.int32)

    def accept(self, token):
        if self._n_beyond or token in END_TOKENS or not self._allows(token):
            self._n_beyond += 1
        else:
            self._taken.append(token)

    def rollback(self, n):
        n_beyond = min(n, self._n_beyond)
        self._n_beyond -= n_beyond
        del self._taken[len(self._taken) - n + n_beyond :]

    def copy(self):
        return type(self)(self._taken, self._n_beyond)


class SlowGrammar:
    """Another grammar whose answers take time: a random number of further questions is in vain."""

    def __init__(self, grammar, rng: random.Random):
        self._grammar, self._rng = grammar, rng
        self._asked, self._left = None, 0

    @property
    def is_ready(self):
        self._left = max(0, self._left - 1)
        return self._left == 0

    def allows(self, tokens):
        self._wait(("allows", *tokens))
        return self._grammar.allows(tokens)

    def allowed(self):
        self._wait(("allowed",))
        return self._grammar.allowed()

    def _wait(self, asked):
        if asked != self._asked:
            self._asked, self._left = asked, self._rng.choice([0, 0, 1, 3])
        if not self.is_ready:
            raise PendingAnswerError("wait")

    def accept(self, token):
        self._asked = None
        self._grammar.accept(token)

    def rollback(self, n):
        self._asked = None
        self._grammar.rollback(n)

    def copy(self):
        return SlowGrammar(self._grammar.copy(), self._rng)


TOY_CALLS = CallGrammars(r"<(?P<name>[369])>", {})
"""The grammar applies from the first of these tokens on."""


class ToyCalls(ToyGrammar):
    """The grammar from the first of `TOY_CALLS` on. As in `FollowedCalls`, everything before it is free."""

    def _allows(self, token):
        n_free = next((n for n, taken in enumerate(self._taken) if taken in (3, 6, 9)), None)
        return n_free is None or ToyGrammar(self._taken[n_free:])._allows(token)


class ToyVocabulary:
    """A vocabulary with the texts of tokens."""

    n_tokens = N_VOCAB

    @staticmethod
    def piece(token, *, special):  # noqa: ARG004 - as the real one's
        return b"<%d>" % token


def toy_sampler(
    parameters: SamplingParameters, history: list[int], like: Sampler | None = None, /, *, follow=None
) -> Sampler:
    """follow: returns the object to ask in place of a grammar."""
    follow = follow or (lambda grammar: grammar)
    filters = NativeFilters(parameters, N_VOCAB, END_TOKENS, None) if needs_filters(parameters) else None
    if not parameters.is_constrained:
        return Sampler(parameters, filters, history)
    if isinstance(like, ConstrainedSampler):
        beginning = like
    elif parameters.calls is not None:
        beginning = FreeUntilCall(parameters.calls, ToyVocabulary(), lambda _: follow(ToyCalls()))
    else:
        beginning = follow(ToyGrammar())
    return ConstrainedSampler(parameters, filters, history, beginning, min(END_TOKENS))


def plain_run(
    request: Submit, n_ctx: int, batch_sizes: InvariantSizes | None = None
) -> tuple[list[int], str]:
    """All tokens of a request and its end, one token at a time with nothing in between: the truth.

    The rows of images are left out, as in events.
    """
    answer = functools.partial(_answer_hash, separates=batch_sizes is not None and not batch_sizes.is_uniform)
    tokens, context = list(request.text), list(request.tokens)
    n_skipped = sum(image.n_rows - image.n_positions for image in request.images)
    text_hash = _prompt_hash(request)
    sampler = toy_sampler(request.sampling, tokens)
    while request.max_tokens is None or len(tokens) < len(request.text) + request.max_tokens:
        if len(context) == n_ctx:
            if request.n_keep is None:
                break
            del context[request.n_keep : request.n_keep + (n_ctx - request.n_keep) // 2]
            text_hash = functools.reduce(extend_hash, context, 0)
        tokens.append(sampler.choose(toy_logits(text_hash), len(tokens)))
        sampler.accept(tokens[-1])
        if tokens[-1] in END_TOKENS:
            return tokens, "stop"
        context.append(tokens[-1])
        text_hash = answer(text_hash, tokens[-1], n_skipped)
    return tokens, "length"


def _prompt_hash(request: Submit) -> int:
    text_hash = 0
    for row, token in enumerate(request.tokens):
        n_skipped = sum(each.n_rows - each.n_positions for each in request.images if each.end <= row)
        text_hash = extend_hash(text_hash, token, n_skipped)
    return text_hash


def _answer_hash(text_hash: int, token: int, n_skipped: int, *, separates: bool) -> int:
    return extend_hash(text_hash, as_answer(token) if separates else token, n_skipped)
