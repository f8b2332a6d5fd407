"""Random vocabularies, and a draft model of such a vocabulary that knows how a text goes on."""

import random
from bisect import bisect_left

import numpy as np

from shared.llama.memory_traits import PLAIN
from shared.llama.span import Span
from shared.translation.byte_vocabulary import ByteVocabulary

ALPHABET = " abcde"


def longest_first(pieces):
    """A vocabulary whose tokenizer takes the longest token that fits, from left to right."""
    return ByteVocabulary(pieces, lambda _text: [])  # what it says is refused: the fallback is taken


def random_vocabulary(rng, n_words, alphabet=ALPHABET, longest=4):
    """All single bytes and `n_words` random strings."""
    words = {"".join(rng.choices(alphabet, k=rng.randint(2, longest))).encode() for _ in range(n_words)}
    return longest_first([bytes([byte]) for byte in range(256)] + sorted(words))


def random_text(rng, n, alphabet=ALPHABET):
    return "".join(rng.choices(alphabet, k=n)).encode()


class KnowingModel:
    """Expects that `text` goes on as it does, in its own tokens; the memory is a list for each slot.

    `doubt` is the probability of all other tokens together.
    """

    def __init__(self, vocabulary, text, *, n_slots=4, n_ctx=100_000, n_batch=64, traits=PLAIN, doubt=0.01):
        self.vocabulary, self.text = vocabulary, text
        self.n_slots, self.n_ctx_slot, self.n_batch, self.traits = n_slots, n_ctx, n_batch, traits
        self.memory = [[] for _ in range(n_slots)]
        self.kept = {}
        self.n_decodes = 0
        self._other = np.log(doubt / len(vocabulary))
        self._expected, offset = {}, 0
        for token in vocabulary.encode(text):
            self._expected[offset] = token
            offset += len(vocabulary.pieces[token])
        self._boundaries = [*self._expected, len(text)]

    def decode(self, spans):
        assert sum(len(span.tokens) for span in spans) <= self.n_batch
        self.n_decodes += 1
        return [self._rows(span) for span in spans]

    def trim(self, slot, n_keep):
        del self.memory[slot][n_keep:]

    def copy(self, source_slot, slot, n_keep):
        assert not self.memory[slot]
        self.memory[slot] = self.memory[source_slot][:n_keep]

    def save(self, slot, number):
        self.kept[slot, number] = list(self.memory[slot])

    def restore(self, source, number, slot):
        self.memory[slot] = list(self.kept[source, number])

    def data(self, slot):
        """The text in the memory."""
        return b"".join(self.vocabulary.pieces[token] for token in self.memory[slot])

    def _rows(self, span):
        memory = self.memory[span.slot]
        assert len(memory) == span.start, f"{len(memory)} tokens in slot {span.slot}, not {span.start}"
        assert span.start + len(span.tokens) <= self.n_ctx_slot
        memory += span.tokens
        rows = [self._row(memory[: len(memory) - n]) for n in reversed(range(span.n_logits))]
        return np.array(rows, np.float32).reshape(span.n_logits, len(self.vocabulary))

    def _row(self, tokens):
        row = np.full(len(self.vocabulary), self._other, np.float32)
        offset = len(b"".join(self.vocabulary.pieces[token] for token in tokens[-self.n_ctx_slot :]))
        if offset < len(self.text):
            row[self._token_at(offset)] = 0.0
        return row

    def _token_at(self, offset):
        if offset in self._expected:
            return self._expected[offset]
        end = self._boundaries[bisect_left(self._boundaries, offset)]
        return self.vocabulary.encode(self.text[offset:end])[0]


def follow(model, tokens, n_first, n=None, slot=0):
    """How many of `tokens` after the first ones a translating model would draft, each from the right text."""
    n_right = 0
    start = 0
    for end in range(n_first, len(tokens) if n is None else n_first + n):
        (rows,) = model.decode([Span(slot, start, tokens[start:end], 1)])
        n_right += choose(model, rows[0], slot) == tokens[end]
        model.check_integrity()
        start = end
    return n_right


def choose(model, logits, slot=0):
    """The likeliest token, after looking ahead."""
    while better := model.look_ahead({slot: int(logits.argmax())}):
        logits = better[slot]
    return int(logits.argmax())


def generator(seed):
    return random.Random(seed)
