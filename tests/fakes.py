"""Fakes of the engine's neighbours: a toy model with its own books, drafters of every character, a front.

The toy model is a pure function of the tokens in its cache, over a vocabulary of N_VOCAB tokens.
"""

import contextlib
import functools
import itertools
import pickle
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import replace

import numpy as np

from lead.backs.assignment import Assignment
from lead.disk_cache.text_files import DamagedTextError, FolderNews
from lead.engine.commands import Cancel, Submit
from lead.engine.drafters.lookup import NgramDrafter, PredictionDrafter
from lead.engine.drafters.model_drafter import ModelDrafter
from lead.engine.engine import Engine
from lead.engine.engine_limits import EngineLimits
from lead.engine.events import Committed, DraftsDropped, Finished, Started
from lead.engine.loop import Loop
from lead.engine.sequence import EngineSequence
from lead.engine.speculation.batching import batching_for
from lead.engine.speculation.drafts import Drafts as SequenceDrafts
from lead.engine.speculation.manager import MakeLookups, SpeculationManager
from lead.engine.target import Target
from shared.cache_edits import SlotMemory
from shared.drafting.drafter import Drafter
from shared.drafting.drafter_options import DrafterOptions
from shared.errors import KvCacheFullError, PendingAnswerError
from shared.exact.batch_invariance import RESERVE, InvariantSizes
from shared.llama.batch_layout import Layout, LayoutRules, layout
from shared.llama.memory_traits import PLAIN
from shared.prompt_cache import NO_PROMPT_CACHE, PromptCacheSize
from shared.protocol import MAX_DRAFT_TOKENS, Close, Draft, Extend, Open, Tune
from shared.sampling.call_grammars import CallGrammars
from shared.sampling.constrained import ConstrainedSampler
from shared.sampling.filters import NativeFilters
from shared.sampling.followed_calls import FreeUntilCall
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler, needs_filters
from shared.saved_text import SavedPart, SavedText
from shared.translation.projection import Projection
from shared.translation.translating_model import TranslatingModel
from tests.lead.backs.harness import connected
from tests.shared.translation.toys import random_pair

N_VOCAB = 24
END_TOKENS = frozenset({3, 17})
GREEDY = SamplingParameters(seed=0, temperature=0)

Drafts = list[Draft]
Texts = dict[str, list[int]]


# The model


@functools.cache
def _toy_rows() -> np.ndarray:
    """Logits of 8,192 texts: drawing them for each text would take longer than the engine's own step."""
    rows = np.random.default_rng(1).normal(size=(1 << 13, N_VOCAB)).astype(np.float32) * 2
    rows[:, list(END_TOKENS)] -= 2
    return rows


def toy_logits(text_hash: int) -> np.ndarray:
    """The logits behind a text: peaked, as a real model's are; end tokens are rare."""
    return _toy_rows()[text_hash * 0x9E3779B97F4A7C15 % (1 << 64) >> 51]


def extend_hash(text_hash: int, token: int) -> int:
    return (text_hash * 0x5851F42D4C957F2D + token + 1) % (1 << 64)


def as_answer(token: int) -> int:
    """The token that a generated one counts as where prompts are decoded in other batch sizes."""
    return token + N_VOCAB


class FakeTarget(Target):
    """A deterministic model that keeps its own records, and raises AssertionError if a caller's differ.

    `blur` makes it differ from the model without: as a draft model it is then only sometimes right. What its
    `traits` do not allow it refuses, as llama.cpp should. Where llama.cpp computes wrong logits without an
    error, it notices: see `_is_wrong`. own_cells: slots do not share a pool of cells. batch_sizes: as it
    decodes; a generated token that was read as part of a prompt is then another one.
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
        self._saved: dict[int, tuple] = {}  # slot, state and cells, by their place
        self._wrong: set[int] = set()
        self._written: list[list[int]] = [[] for _ in range(n_slots)]  # hashes, in cells of their own
        self._copies: list[tuple[int, int]] = []  # of such cells, which the next decode begins with
        self._reserved: dict[int, bytearray] = {}  # snapshots that are being read
        self.n_restored = self.n_loaded = 0
        self._rows = np.empty((0, N_VOCAB), np.float32)

    @property
    def layout_rules(self):
        n_ctx, own_cells = min(self.n_ctx, self.n_window), self._own_cells
        return LayoutRules(
            self.n_batch, n_ctx, self.traits, own_cells=own_cells, batch_sizes=self._batch_sizes
        )

    def decode(self, spans):
        self._rows[:] = np.nan  # what the last decode returned were views
        planned = spans if isinstance(spans, Layout) else layout(spans, self.layout_rules)
        assert 0 < sum(len(span.tokens) for span in planned) <= self.n_batch
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
        del self.slots[slot][n_keep:]
        del self._hashes[slot][n_keep + 1 :]
        del self._cells[slot][n_keep:]

    def copy(self, source_slot, slot, n_keep):
        """A recurrent state, or a window, is that of all tokens of the source: its own has to be loaded."""
        n_held = len(self.slots[source_slot])
        assert not self.slots[slot], f"slot {slot} is not empty"
        assert 0 < n_keep <= n_held, f"slot {source_slot} has no {n_keep} tokens"
        self.slots[slot] = self.slots[source_slot][:n_keep]
        self._hashes[slot] = self._hashes[source_slot][: n_keep + 1]
        self._cells[slot] = self._cells[source_slot][:n_keep]
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
        self.stored[snapshot.key] = tokens, hashes, is_wrong

    def restore(self, slot, snapshot, n_keep):
        match snapshot.kind:
            case "device":
                self.n_restored += 1
                _, *state, cells = self._saved[snapshot.key]
                self._set_state(slot, tuple(state), cells)
                self._forget_saved(slot, len(self.slots[slot]))
            case "state":
                self.n_loaded += 1
                tokens = self.stored[snapshot.key][0]
                assert self.slots[slot][: len(tokens)] == tokens, "the slot holds another text"
                self._forget_saved(slot, len(tokens))
                self._set_state(slot, self.stored[snapshot.key], self._cells[slot][: len(tokens)])
            case "text":
                self._load_text(slot, snapshot, n_keep)
        assert len(self.slots[slot]) == n_keep

    def _load_text(self, slot, snapshot, n_keep):
        """All cells of the text are taken before those beyond `n_keep` are freed."""
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
        self.slots[slot] += tokens[: n_keep - start]
        self._hashes[slot] += hashes[1 : n_keep - start + 1]
        self._written[slot][start:] = self._hashes[slot][start + 1 :]
        self._last.pop(slot, None)
        if is_wrong:
            self._wrong.add(slot)

    def forget(self, key):
        del self.stored[key]

    def lend(self, key):
        return memoryview(pickle.dumps(self.stored[key])) if key in self.stored else None

    def reserve(self, key, size):
        self._reserved[key] = bytearray(size)
        return memoryview(self._reserved[key])

    def take_back(self, key):
        """What is not what was stored is not looked at."""
        if content := self._reserved.pop(key, None):
            with contextlib.suppress(pickle.UnpicklingError, EOFError):
                self.stored[key] = [], [], True
                self.stored[key] = pickle.loads(content)  # noqa: S301 - of `lend`

    @property
    def n_stored(self):
        return len(self.stored)

    @property
    def n_cells_used(self):
        saved = (cells for *_, cells in self._saved.values())
        return len(set().union(*self._cells, *saved)) + sum(self._padding.values())

    # What a slot holds

    def _is_wrong(self, slot):
        """Whether its memory is not that of its tokens, of which llama.cpp says nothing."""
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
        """Every token is decoded once and in order, in passes that the model can compute."""
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
        assert span.start == len(cache), f"slot {slot}: span at {span.start}, cache ends at {len(cache)}"
        assert 0 <= span.n_logits <= len(span.tokens)
        assert len(cache) + len(span.tokens) <= self.n_window, "more than the model can see"
        assert not self._is_wrong(slot), f"slot {slot} holds the memory of other tokens than its own"
        is_answer = self._batch_sizes is not None and not (span.is_prompt or self._batch_sizes.is_uniform)
        for token in span.tokens:
            assert 0 <= token < N_VOCAB, f"no such token: {token}"
            cache.append(token)
            self._cells[slot].append(self._n_cells_written)
            self._n_cells_written += 1
            hashes.append(extend_hash(hashes[-1], as_answer(token) if is_answer else token))
        self._written[slot][span.start :] = hashes[span.start + 1 :]
        first = len(hashes) - span.n_logits
        return [self._row(text_hash) for text_hash in hashes[first:]]

    def _row(self, text_hash):
        row = toy_logits(text_hash)
        return row + self._blur * toy_logits(text_hash ^ 0xB10) if self._blur else row


def last_pass(lengths: dict[int, int], n_end: int, *, adjacent: bool) -> dict[int, int]:
    """Which slots are in the last of the passes over spans of these lengths, and their tokens in it.

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
    """Has no room for a batch now and then, at random; for a single token it always has."""

    def __init__(self, *args, rng: random.Random, rate: float, **kwargs):
        super().__init__(*args, **kwargs)
        self._rng, self._rate = rng, rate
        self.n_failed = 0

    def decode(self, spans):
        if sum(len(span.tokens) for span in spans) > 1 and self._rng.random() < self._rate:
            self.n_failed += 1
            raise KvCacheFullError("no room")
        return super().decode(spans)


class ToyGrammar:
    """The remainders of the tokens by 3 are 0, 1, 2, 0, 1, 2, … or backwards; it may end after 4 tokens."""

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
    """Another grammar whose answers take some time: the next questions are in vain, at random how many."""

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
"""From one of these tokens on the grammar applies."""


class ToyVocabulary:
    """The texts of tokens."""

    n_tokens = N_VOCAB

    @staticmethod
    def piece(token, *, special):  # noqa: ARG004 - as the real one's
        return b"<%d>" % token


def toy_sampler(
    parameters: SamplingParameters, history: list[int], like: Sampler | None = None, /, *, follow=ToyGrammar
) -> Sampler:
    filters = NativeFilters(parameters, N_VOCAB, END_TOKENS, None) if needs_filters(parameters) else None
    if not parameters.is_constrained:
        return Sampler(parameters, filters, history)
    if isinstance(like, ConstrainedSampler):
        beginning = like
    elif parameters.calls is not None:
        beginning = FreeUntilCall(parameters.calls, ToyVocabulary(), lambda _: follow())
    else:
        beginning = follow()
    return ConstrainedSampler(parameters, filters, history, beginning, min(END_TOKENS))


def plain_run(
    request: Submit, n_ctx: int, batch_sizes: InvariantSizes | None = None
) -> tuple[list[int], str]:
    """All tokens of a request and how it ends, one token at a time with nothing in between: the truth."""
    answer = functools.partial(_answer_hash, separates=batch_sizes is not None and not batch_sizes.is_uniform)
    tokens, context = list(request.tokens), list(request.tokens)
    text_hash = functools.reduce(extend_hash, context, 0)
    sampler = toy_sampler(request.sampling, tokens)
    while request.max_tokens is None or len(tokens) < len(request.tokens) + request.max_tokens:
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
        text_hash = answer(text_hash, tokens[-1])
    return tokens, "length"


def _answer_hash(text_hash: int, token: int, *, separates: bool) -> int:
    return extend_hash(text_hash, as_answer(token) if separates else token)


def submit(sequence="s", tokens=(1, 2), sampling=GREEDY, max_tokens=None, **options) -> Submit:
    tokens = list(tokens)
    return Submit(sequence=sequence, tokens=tokens, sampling=sampling, max_tokens=max_tokens, **options)


def engine_sequence(name="s", tokens=(1, 2), n_ctx=1000, checkpoints=(), **more) -> EngineSequence:
    request = submit(name, tokens, **more)
    sequence = EngineSequence(request, n_ctx, lambda _: toy_sampler(GREEDY, tokens), checkpoints)
    sequence.drafts = SequenceDrafts(name, sequence.tokens, {}, 0.0)
    return sequence


# Drafters: what a back may do. `drafts` is asked before each step, with the tokens of the running sequences.


class Silent:
    def drafts(self, _committed: Texts) -> Drafts:
        return []


class Perfect:
    """Knows the target's text and drafts beyond its end, too."""

    def __init__(self, truth: Texts, n_ahead=9):
        self._truth, self._n_ahead = truth, n_ahead

    def drafts(self, committed: Texts) -> Drafts:
        return [self._draft(sequence, len(tokens)) for sequence, tokens in committed.items()]

    def _draft(self, sequence: str, base: int) -> Draft:
        tokens = [*self._truth[sequence][base:], 5, 3, 7][: self._n_ahead]
        return Draft(sequence=sequence, source="perfect", base=base, tokens=tokens)


class Random:
    """Any tokens, any number of them."""

    def __init__(self, rng: random.Random):
        self._rng = rng

    def drafts(self, committed: Texts) -> Drafts:
        return [
            Draft(sequence=sequence, source="random", base=len(tokens), tokens=self._tokens())
            for sequence, tokens in committed.items()
        ]

    def _tokens(self):
        return self._rng.choices(range(N_VOCAB), k=self._rng.randint(1, 20))


class Hostile:
    """Almost the truth: a wrong token inside, end tokens, wrong bases, ids of other sequences."""

    def __init__(self, truth: Texts, rng: random.Random):
        self._truth, self._rng = truth, rng

    def drafts(self, committed: Texts) -> Drafts:
        tricks = [self._lie, self._stop, self._ahead, self._from_the_start, self._for_another]
        return [
            self._rng.choice(tricks)(sequence, tokens)
            for sequence, tokens in committed.items()
            for _ in range(2)
        ]

    def _post(self, sequence, base, tokens):
        return Draft(sequence=sequence, source=f"hostile-{self._rng.randint(0, 2)}", base=base, tokens=tokens)

    def _lie(self, sequence, tokens):
        draft = [*self._truth[sequence][len(tokens) : len(tokens) + 8], 5]
        i = self._rng.randrange(len(draft))
        draft[i] = (draft[i] + 1) % N_VOCAB
        return self._post(sequence, len(tokens), draft)

    def _stop(self, sequence, tokens):
        right = self._truth[sequence][len(tokens) : len(tokens) + self._rng.randint(0, 3)]
        return self._post(sequence, len(tokens), [*right, 3, 3, 17, 1])

    def _ahead(self, sequence, tokens):
        base = len(tokens) + self._rng.randint(1, 100)
        return self._post(sequence, base, [1, 2, 3])

    def _from_the_start(self, sequence, tokens):
        base = max(0, len(tokens) - 40)
        text = [*tokens, *self._truth[sequence][len(tokens) :], 3, 4]
        return self._post(sequence, base, text[base : base + MAX_DRAFT_TOKENS])

    def _for_another(self, sequence, _tokens):
        other = self._rng.choice(["unknown", *self._truth])
        base = self._rng.randint(0, 2 + len(self._truth[sequence]))
        return self._post(other, base, self._rng.choices(range(N_VOCAB), k=4))


class Late:
    """Another's drafts, some steps later."""

    def __init__(self, inner, n_steps=2):
        self._inner = inner
        self._under_way = deque([[]] * n_steps)

    def drafts(self, committed: Texts) -> Drafts:
        self._under_way.append(self._inner.drafts(committed))
        return self._under_way.popleft()


class Reordering:
    """Another's drafts, held back at random and handed over in any order."""

    def __init__(self, inner, rng: random.Random):
        self._inner, self._rng = inner, rng
        self._held: Drafts = []

    def drafts(self, committed: Texts) -> Drafts:
        held = [*self._held, *self._inner.drafts(committed)]
        self._rng.shuffle(held)
        n = self._rng.randint(0, len(held))
        self._held = held[n:]
        return held[:n]


class Duplicating:
    """Another's drafts, twice, and then again those of long ago."""

    def __init__(self, inner):
        self._inner = inner
        self._past: deque[Draft] = deque(maxlen=12)

    def drafts(self, committed: Texts) -> Drafts:
        new = self._inner.drafts(committed)
        self._past += new
        return [*new, *new, *self._past]


class Growing:
    """Knows the target's text; its draft has two more tokens, in two messages, each time it is asked."""

    def __init__(self, truth: Texts):
        self._truth = truth
        self._begun: dict[str, tuple[int, int]] = {}  # (base, tokens so far)

    def drafts(self, committed: Texts) -> Drafts:
        return [
            self._draft(sequence, len(tokens)) for sequence, tokens in committed.items() for _ in range(2)
        ]

    def _draft(self, sequence: str, n_committed: int) -> Draft:
        base, n = self._begun.get(sequence, (n_committed, 0))
        base, n = (base, n + 1) if n_committed < base + n else (n_committed, 1)
        self._begun[sequence] = base, n
        tokens = [*self._truth[sequence], 5, 3, 7, 0][base : base + min(n, MAX_DRAFT_TOKENS)]
        confidences = [0.9] * len(tokens)
        return Draft(sequence=sequence, source="growing", base=base, tokens=tokens, confidences=confidences)


class Branching:
    """The truth in a tree: with wrong tokens on its main line, and a right branch next to each of them."""

    def __init__(self, truth: Texts, rng: random.Random):
        self._truth, self._rng = truth, rng

    def drafts(self, committed: Texts) -> Drafts:
        return [self._draft(sequence, len(tokens)) for sequence, tokens in committed.items()]

    def _draft(self, sequence: str, n_committed: int) -> Draft:
        base = max(0, n_committed - self._rng.randint(0, 3))
        tokens: list[int] = []
        parents: list[int] = []
        parent = -1
        for right in [*self._truth[sequence][base:], 5, 3, 7][:9]:
            if self._rng.random() < 0.3:
                tokens += [(right + 1) % N_VOCAB, self._rng.randrange(N_VOCAB)]
                parents += [parent, len(tokens) - 2]
            tokens.append(right)
            parents.append(parent)
            parent = len(tokens) - 1
        confidences = [self._rng.random() for _ in tokens]
        return Draft(
            sequence=sequence,
            source="branching",
            base=base,
            tokens=tokens,
            parents=parents,
            confidences=confidences,
        )


class Thicket:
    """Any tree with any confidences, at any base; some of its tokens are the truth, wherever they hang."""

    def __init__(self, truth: Texts, rng: random.Random):
        self._truth, self._rng = truth, rng

    def drafts(self, committed: Texts) -> Drafts:
        return [
            self._draft(sequence, len(tokens))
            for sequence, tokens in committed.items()
            for _ in range(self._rng.randint(0, 3))
        ]

    def _draft(self, sequence: str, n_committed: int) -> Draft:
        rng = self._rng
        base = max(0, n_committed + rng.randint(-3, 1))
        ahead = [*self._truth[sequence][base:], 3, 17]
        n = rng.randint(1, 64)
        tokens = [rng.choice([ahead[min(i, len(ahead) - 1)], rng.randrange(N_VOCAB)]) for i in range(n)]
        shape = rng.choice([lambda i: rng.randint(-1, i - 1), lambda i: max(-1, i - 3), lambda _: -1])
        confidences = [rng.choice([0.0, 1.0, rng.random()]) for _ in tokens]
        return Draft(
            sequence=sequence,
            source=f"thicket-{rng.randint(0, 2)}",
            base=base,
            tokens=tokens,
            parents=[shape(i) for i in range(n)],
            confidences=rng.choice([None, confidences]),
        )


class Several:
    """Others, all at once."""

    def __init__(self, *inner):
        self._inner = inner

    def drafts(self, committed: Texts) -> Drafts:
        return [draft for drafter in self._inner for draft in drafter.drafts(committed)]


class Crowd:
    """Backs of every character that join and leave, each asked for what the lead's front assigns to it."""

    def __init__(self, inner: dict, rng: random.Random):
        """`inner`: drafters by the names of their backs."""
        self._inner, self._rng = inner, rng
        self._now = 0.0
        self._assignment = Assignment(0.0)
        self._told: Texts = {}

    def drafts(self, committed: Texts) -> Drafts:
        self._now += 0.05
        self._change_connections()
        self._tell(committed)
        drafts = [
            draft for name in sorted(self._assignment.backs) for draft in self._drafts_of(name, committed)
        ]
        self._assignment.check_integrity()
        return drafts

    def _change_connections(self):
        name = self._rng.choice(sorted(self._inner))
        back = self._assignment.backs.get(name)
        if back is None:
            self._assignment.join(connected(name, self._rng.randint(1, 4)), self._now)
        elif self._rng.random() < 0.05:
            self._assignment.leave(back, self._now)

    def _tell(self, committed: Texts):
        for sequence in self._told.keys() - committed.keys():
            self._assignment.close(sequence, self._now)
        for sequence, tokens in committed.items():
            if sequence not in self._told:
                self._assignment.open(sequence, self._now)
            elif len(tokens) > len(self._told[sequence]):
                asked = self._assignment.asked(sequence)
                n_right = {back.name: (self._rng.randrange(3), self._rng.randrange(2)) for back in asked}
                self._assignment.on_step(sequence, n_right, 0.05, self._now)
        self._told = {sequence: list(tokens) for sequence, tokens in committed.items()}

    def _drafts_of(self, name: str, committed: Texts) -> Drafts:
        back = self._assignment.backs[name]
        asked = {each: committed[each] for each in sorted(committed) if back in self._assignment.asked(each)}
        drafts = [draft.model_copy(update={"source": name}) for draft in self._inner[name].drafts(asked)]
        return [draft for draft in drafts if draft.sequence in asked]


class RealBack:
    """The project's own drafter with side branches, and a model that is `blur` away from the target."""

    def __init__(self, requests: Iterable[Submit], blur: float, n_ahead=6, n_window=1000, n_branches=2):
        self._requests = {request.sequence: request for request in requests}
        options = DrafterOptions(
            2,
            n_window,
            n_ahead,
            n_chunk=4,
            n_branches=n_branches,
            n_branch_tokens=3,
            prompt_cache=PromptCacheSize(200, 1),
        )
        self._drafter = self._make(options, blur)
        self._told: Texts = {}

    def _make(self, options, blur):
        model = FakeTarget(
            options.n_model_slots, cells_for(options), 16, n_window=options.n_window, blur=blur
        )
        return Drafter(model, options, toy_sampler, END_TOKENS)

    def drafts(self, committed: Texts) -> Drafts:
        for sequence in [known for known in self._told if known not in committed]:
            del self._told[sequence]
            self._drafter.handle(Close(sequence=sequence, reason="ended"))
        for sequence, tokens in committed.items():
            self._drafter.handle(self._news(sequence, tokens))
            self._told[sequence] = list(tokens)
        grown = {state.id for _ in range(6) for state in self._drafter.step()}
        states = [self._drafter.sequences[each] for each in sorted(grown & self._drafter.sequences.keys())]
        drafts = [draft for state in states if (draft := state.draft())]
        return [draft.model_copy(update={"source": "back"}) for draft in drafts]

    def _news(self, sequence, tokens):
        if sequence not in self._told:
            sampling = self._requests[sequence].sampling
            return Open(sequence=sequence, sampling=sampling, tokens=tokens)
        start = len(self._told[sequence])
        return Extend(sequence=sequence, start=start, tokens=tokens[start:])


class TranslatingBack(RealBack):
    """The same with a model of another vocabulary; see `toys.random_pair`."""

    def __init__(self, requests: Iterable[Submit], kind: str, rng: random.Random):
        self._pair = random_pair(rng, kind, N_VOCAB)
        super().__init__(requests, blur=0.0)

    def _make(self, options, _blur):
        model = SpellingModel(*self._pair, n_slots=options.n_model_slots)
        translating = TranslatingModel(model, Projection(*self._pair))
        options = replace(options, prompt_cache=NO_PROMPT_CACHE)
        return Drafter(translating, options, toy_sampler, END_TOKENS, look_ahead=translating.look_ahead)


class SpellingModel(SlotMemory):
    """Expects the text that a FakeTarget expects, in tokens of its own."""

    def __init__(self, draft, target, n_slots):
        self.n_batch, self.n_ctx_slot, self.n_slots, self.traits = 16, 400, n_slots, PLAIN
        self._draft, self._target = draft, target
        self._read = functools.cache(self._read)
        self._likenesses = functools.cache(self._likenesses)
        self.memory = [[] for _ in range(n_slots)]

    def decode(self, spans):
        assert 0 < sum(len(span.tokens) for span in spans) <= self.n_batch
        return [self._decode_tokens(span) for span in spans]

    def trim(self, slot, n_keep):
        del self.memory[slot][n_keep:]

    def copy(self, source_slot, slot, n_keep):
        assert not self.memory[slot]
        self.memory[slot] = self.memory[source_slot][:n_keep]

    def _decode_tokens(self, span):
        memory = self.memory[span.slot]
        assert len(memory) == span.start
        memory += span.tokens
        assert len(memory) <= self.n_ctx_slot
        n_before = len(memory) - span.n_logits
        rows = [self._row(memory[: n_before + i + 1]) for i in range(span.n_logits)]
        return np.array(rows, np.float32).reshape(span.n_logits, len(self._draft))

    def _row(self, tokens):
        said, begun = self._read(b"".join(self._draft.pieces[token] for token in tokens))
        text_hash = functools.reduce(extend_hash, said, 0)
        return (self._likenesses(begun) + toy_logits(text_hash)).max(axis=1)

    def _read(self, data):
        """Target tokens, and what is only the beginning of one."""
        for end in range(len(data), -1, -1):
            read = self._target.read(data[:end])
            if all(self._target.pieces[token] == part for token, part in read):
                return [token for token, _ in read], data[end:]
        raise AssertionError(data)

    def _likenesses(self, begun):
        """0 where a token of its own is the beginning of the target's, less where it goes on after that."""
        alike = np.full((len(self._draft), N_VOCAB), -20.0)
        for own, piece in enumerate(self._draft.pieces):
            data = begun + piece
            for token, wanted in enumerate(self._target.pieces):
                if wanted.startswith(data):
                    alike[own, token] = 0.0
                elif data.startswith(wanted):
                    alike[own, token] = -4.0
        return alike


# The front process


class FakeTextFiles:
    """A disk that outlives engines. error_rate: how often it fails, has lost a text, or damaged it."""

    n_most = 10_000

    def __init__(self, rng: random.Random, error_rate=0.0):
        self._rng, self._error_rate = rng, error_rate
        self._numbers = itertools.count()
        self.texts: dict[str, SavedText] = {}
        self._named: set[str] = set()
        self._seen: dict[str, SavedText] = {}
        self.parts: dict[str, bytes] = {}
        self.folder = "a fake"
        self.n_read = self.n_failed = 0

    def open_again(self):
        """For another engine, which has seen none of them."""
        self._seen = {}

    def look(self):
        new = [text for name, text in self.texts.items() if self._seen.get(name) is not text]
        self._seen = dict(self.texts)
        return FolderNews(new, self._named - self.texts.keys())

    def write(self, text, pace):
        self._fail(OSError("the disk is full"))
        parts = []
        for snapshot, piece in text.pieces:
            if isinstance(piece, SavedPart):
                if piece.file not in self.parts:
                    raise FileNotFoundError(piece.file)
                parts.append(piece)
                continue
            pace(len(piece))
            kind, _, end, start = snapshot
            file = f"{text.name}-{next(self._numbers)}"
            self.parts[file] = bytes(piece)
            parts.append(SavedPart(kind=kind, start=start, end=end, file=file, size=len(piece), digest=""))
        self.delete(text.name, kept={part.file for part in parts})
        rest = {name: getattr(text, name) for name in ("name", "owner", "tokens", "n_prefill")}
        self.texts[text.name] = SavedText(parts=tuple(parts), **rest)
        self._named.add(text.name)
        self._seen[text.name] = self.texts[text.name]
        return self.texts[text.name]

    def read(self, part, into):
        self._fail(FileNotFoundError(part.file))
        content = self.parts[part.file]
        into[:] = content
        self._fail(DamagedTextError(part.file))
        self.n_read += 1

    def touch(self, name):
        pass

    def delete(self, name, kept=()):
        self.texts.pop(name, None)
        for file in [file for file in self.parts if file.startswith(f"{name}-") and file not in kept]:
            del self.parts[file]

    def _fail(self, error):
        if self._rng.random() < self._error_rate:
            self.n_failed += 1
            raise error


class LateExecutor(Executor):
    """Does in this thread, when it is looked at for the `n_late`th time, what it was given."""

    def __init__(self, n_late):
        self._n_late = n_late

    def submit(self, do, /, *args):
        return LateFuture(self._n_late, functools.partial(do, *args))


class LateFuture(Future):
    def __init__(self, n_late, do):
        super().__init__()
        self._n_left, self._do = n_late, do

    def done(self):
        self._n_left -= 1
        if self._n_left < 0 and not super().done():
            try:
                self.set_result(self._do())
            except Exception as error:  # noqa: BLE001 - as executors do
                self.set_exception(error)
        return super().done()

    def exception(self, timeout=None):
        while not self.done():
            pass
        return super().exception(timeout)


class FakeFront:
    """A pipe with a script: {step: commands}. Keeps what the engine says and raises if it makes no sense."""

    def __init__(self, script: dict[int, list], drafter=None, n_most_steps=3000):
        self._script = {step: list(commands) for step, commands in script.items()}
        self._drafter = drafter or Silent()
        self._n_most_steps = n_most_steps
        self._n_steps = 0
        self.open = True
        self.running: Texts = {}
        self.texts: Texts = {}  # of all sequences, cancelled ones, too
        self.reasons: dict[str, str] = {}
        self.events: list = []
        self.waits: list[float] = []
        self.now = 0.0

    def drain(self, wait):
        block = wait is None
        assert self._n_steps < self._n_most_steps, f"no end: {self.running}"
        assert not (block and self.running), f"forgotten: {self.running}"
        self._n_steps = min(self._script, default=0) if block else self._n_steps + 1
        due = [step for step in self._script if step <= self._n_steps]
        commands = [command for step in sorted(due) for command in self._script.pop(step)]
        for command in commands:
            self._note(command)
        self.open = bool(self.running or self._script)
        drafts = self._drafter.drafts(self.running)
        if wait:
            self.waits.append(wait)
            self.now += wait / 2 if commands or drafts else wait
        return [*commands, *(draft.model_copy(update={"received_at": self.now}) for draft in drafts)]

    def clock(self):
        """Time passes with every look at it."""
        self.now += 0.001
        return self.now

    def send(self, *events):
        for event in events:
            self.take(event)

    def take(self, event):
        self.events.append(event)
        if isinstance(event, DraftsDropped | Tune):
            return
        text = self.running[event.sequence]  # KeyError: nothing may follow the end of a sequence
        match event:
            case Started():
                assert 0 <= event.n_cached < len(text)
            case Committed():
                assert event.start == len(text), f"{event} does not follow {len(text)} tokens"
                assert 0 <= event.n_accepted <= len(event.tokens)
                assert event.is_plain or len(event.tokens) <= event.n_accepted + 1
                text += event.tokens
            case Finished():
                self.reasons[event.sequence] = event.reason
                del self.running[event.sequence]

    def of(self, kind: type, sequence: str | None = None) -> list:
        """The events of a kind, of one sequence or all."""
        return [
            event for event in self.events if isinstance(event, kind) and sequence in {None, event.sequence}
        ]

    def _note(self, command):
        if isinstance(command, Submit):
            self.running[command.sequence] = self.texts[command.sequence] = list(command.tokens)
        elif isinstance(command, Cancel):
            self.running.pop(command.sequence, None)


def no_drafters(_request: Submit):
    return {}


def local_drafters(request: Submit):
    """Those that the engine's process makes."""
    return {
        "ngram": NgramDrafter(8),
        "prediction": PredictionDrafter(request.prediction, len(request.tokens)),
    }


def cells_for(options: DrafterOptions) -> int:
    """What all sequences take at most; a branch shares the cells of its prefix."""
    return options.n_slots * (options.n_window + options.n_branches * options.n_branch_tokens)


def inline_drafter(n_slots: int, blur: float, n_most=6, n_window=100) -> ModelDrafter:
    """The engine's own drafter, with a model that is `blur` away from the target."""
    options = DrafterOptions(n_slots, n_window, n_most, n_chunk=4, prompt_cache=PromptCacheSize(200, 1))
    model = FakeTarget(options.n_model_slots, cells_for(options), 16, n_window=n_window, blur=blur)
    return ModelDrafter("draft_model", Drafter(model, options, toy_sampler, END_TOKENS), n_most)


def make_engine(
    limits: EngineLimits,
    depth=4,
    policy="fixed",
    make_drafters: MakeLookups = no_drafters,
    inline: ModelDrafter | None = None,
) -> Engine:
    def sampler_for(request: Submit) -> Sampler:
        return toy_sampler(request.sampling, request.tokens)

    speculation = SpeculationManager(
        policy,
        depth,
        END_TOKENS,
        make_drafters,
        batching=batching_for(limits),
        batch_sizes=limits.batch_sizes,
        inline=inline,
    )
    if speculation.inline:
        for n_tokens in range(1, 9):
            speculation.inline.cost.learn(n_tokens, 0.0001)
    return Engine(limits, speculation, sampler_for, END_TOKENS)


def make_limits(n_slots=2, n_ctx=200, n_ctx_sequence=100, n_batch=16, **more) -> EngineLimits:
    return EngineLimits(n_slots=n_slots, n_ctx=n_ctx, n_ctx_sequence=n_ctx_sequence, n_batch=n_batch, **more)


def run_engine(  # noqa: PLR0917 - what a run is made of
    front: FakeFront,
    limits: EngineLimits,
    depth=4,
    make_target: Callable[..., FakeTarget] = FakeTarget,
    policy="fixed",
    make_drafters: MakeLookups = no_drafters,
    inline: ModelDrafter | None = None,
) -> FakeTarget:
    """The real loop and scheduler between a fake model and a fake front, to the script's end."""
    engine = make_engine(limits, depth, policy, make_drafters, inline)
    target = make_target(
        limits.n_slots,
        limits.n_ctx,
        limits.n_batch,
        n_window=limits.n_ctx_sequence,
        traits=limits.traits,
        own_cells=limits.own_cells,
        batch_sizes=limits.batch_sizes,
    )
    loop = Loop(target, engine, front, clock=front.clock)
    while front.open:
        loop.step()
        engine.check_integrity()
    return target
