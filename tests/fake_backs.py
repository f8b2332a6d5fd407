"""Drafts of all kinds of backs. `drafts` gets the tokens of the running sequences before each step."""

import functools
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from lead.backs.assignment import Assignment
from lead.engine.commands import Submit
from shared.cache_edits import SlotMemory
from shared.drafting.drafter import Drafter
from shared.drafting.drafter_options import DrafterOptions
from shared.llama.memory_traits import PLAIN
from shared.protocol import MAX_DRAFT_TOKENS, Close, Draft, Extend, Open
from shared.text_store import NO_PROMPT_CACHE, PromptCacheSize
from shared.translation.projection import Projection
from shared.translation.translating_model import TranslatingModel
from tests.lead.backs.harness import connected
from tests.shared.translation.toys import random_pair
from tests.toy_model import END_TOKENS, N_VOCAB, FakeTarget, extend_hash, toy_logits, toy_sampler

Drafts = list[Draft]
Texts = dict[str, list[int]]


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
    """Any number of random tokens."""

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
    """Almost the truth, with a wrong token inside, end tokens, wrong bases, or ids of other sequences."""

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
    """Another back's drafts, a few steps later."""

    def __init__(self, inner, n_steps=2):
        self._inner = inner
        self._under_way = deque([[]] * n_steps)

    def drafts(self, committed: Texts) -> Drafts:
        self._under_way.append(self._inner.drafts(committed))
        return self._under_way.popleft()


class Reordering:
    """Another back's drafts, held back at random and handed over in any order."""

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
    """Another back's drafts, twice, and then its old drafts again."""

    def __init__(self, inner):
        self._inner = inner
        self._past: deque[Draft] = deque(maxlen=12)

    def drafts(self, committed: Texts) -> Drafts:
        new = self._inner.drafts(committed)
        self._past += new
        return [*new, *new, *self._past]


class Growing:
    """Knows the target's text. Each call adds two tokens to its draft, in two messages."""

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
    """The truth in a tree with wrong tokens on its main line. A right branch is next to each of them."""

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
    """Any tree with any confidences, at any base. Some of its tokens are the truth, at any position."""

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
    """Several backs at once."""

    def __init__(self, *inner):
        self._inner = inner

    def drafts(self, committed: Texts) -> Drafts:
        return [draft for drafter in self._inner for draft in drafter.drafts(committed)]


class Crowd:
    """Backs of every kind that join and leave. Each drafts what the lead's front assigns to it."""

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
    """The project's own drafter with side branches. Its model is `blur` away from the target."""

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
    """A `RealBack` whose model has another vocabulary; see `toys.random_pair`."""

    def __init__(self, requests: Iterable[Submit], kind: str, rng: random.Random):
        self._pair = random_pair(rng, kind, N_VOCAB)
        super().__init__(requests, blur=0.0)

    def _make(self, options, _blur):
        model = SpellingModel(*self._pair, n_slots=options.n_model_slots)
        translating = TranslatingModel(model, Projection(*self._pair))
        options = replace(options, prompt_cache=NO_PROMPT_CACHE)
        return Drafter(translating, options, toy_sampler, END_TOKENS, look_ahead=translating.look_ahead)


class SpellingModel(SlotMemory):
    """Expects the same text as a FakeTarget, in its own tokens."""

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
        """The complete target tokens in `data`, and the rest, which is only the beginning of a token."""
        for end in range(len(data), -1, -1):
            read = self._target.read(data[:end])
            if all(self._target.pieces[token] == part for token, part in read):
                return [token for token, _ in read], data[end:]
        raise AssertionError(data)

    def _likenesses(self, begun):
        """(own, target): 0 if the target's token begins with the own one, less if the own token is longer."""
        alike = np.full((len(self._draft), N_VOCAB), -20.0)
        for own, piece in enumerate(self._draft.pieces):
            data = begun + piece
            for token, wanted in enumerate(self._target.pieces):
                if wanted.startswith(data):
                    alike[own, token] = 0.0
                elif data.startswith(wanted):
                    alike[own, token] = -4.0
        return alike


def cells_for(options: DrafterOptions) -> int:
    """The most cells that all sequences take. A branch shares the cells of its prefix."""
    return options.n_slots * (options.n_window + options.n_branches * options.n_branch_tokens)
