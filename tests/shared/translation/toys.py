"""Random vocabularies, and functions that follow a text with a translating model."""

import random

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


KINDS = ("single bytes", "overlapping pieces", "byte fallback", "specials", "missing bytes")
_MARKS = [b"\xff" + bytes([0x80 + number]) for number in range(3)]
_CHARACTERS = [character.encode() for character in "é世界😀"]


def random_pair(rng, kind, n_target):
    """The vocabularies of a draft model and of a target with `n_target` tokens, both in any order."""
    letters = [bytes([letter]) for letter in b"abcd"]
    single = [bytes([byte]) for byte in range(n_target)]
    characters_bytes = [bytes([byte]) for byte in sorted(set(b"".join(_CHARACTERS)))]
    target, draft = {
        "single bytes": (single, single),
        "overlapping pieces": (letters, letters),
        "byte fallback": (_CHARACTERS, characters_bytes),
        # each lacks a byte that the other one has, but for those in longer tokens
        "missing bytes": (letters, [b"a", b"b", b"c", b"?"]),
        # of the target's special tokens one is plain text for the draft model
        "specials": ([b"a", b"b", *_MARKS[:2], b"<b>"], [b"a", b"b", *_MARKS, b"<", b">"]),
    }[kind]
    elements = [piece for piece in target if piece not in _MARKS]
    target, draft = (
        each + _joined(rng, elements, n, each) for each, n in ((target, n_target - len(target)), (draft, 8))
    )
    rng.shuffle(target)
    rng.shuffle(draft)
    return longest_first(draft), longest_first(target)


def _joined(rng, elements, n, known):
    found = set()
    while len(found) < n:
        found |= {b"".join(rng.choices(elements, k=rng.choice([2, 2, 3])))} - set(known)
    return sorted(found)


def random_text(rng, n, alphabet=ALPHABET):
    return "".join(rng.choices(alphabet, k=n)).encode()


def follow(model, tokens, n_first, n=None, slot=0):
    """The number of `tokens` that a translating model drafts, each after the right text.

    The first `n_first` tokens are read, and do not count.
    """
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
