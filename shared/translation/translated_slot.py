"""A text of the lead, and the draft tokens to decode for the distribution after it.

An example with three tokens on each side:

    the lead's tokens          [The][ wat][er]         the text, whose end is the position |
    the draft model's tokens   [The][ water][ is]      cut otherwise
                               ^0   ^3      ^9         offsets in bytes

    text         decoded before   decoded next
    The|         -                [The]      the text as the draft model's tokenizer cuts it (`_spell`)
    The wat|     [The]            nothing    if [ water] was expected after [The]: what follows its first
                                             bytes is known from the same logits (`_go_on`)
    The water|   [The]            [ water]   if that token was expected (`_go_on`)
    The winner|  [The][ water]    [ winner]  [ water] is removed; the text after the last whole word that is
                                             right is cut anew (`_spell`)
    The water|   [The][ water]    nothing    if what follows [ water] is known, else [ water] again
                                             (`_repeat`)

If the drafter would choose [ is] next, and the lead has a longer token ([ island]) that begins with it and
that the draft model lacks, then [ is] is decoded beyond the position, to see how likely the rest of [ island]
is after it (`look_ahead`). If the choice stays [ is], it is decoded already.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.llama.memory_traits import MemoryTraits
from shared.slot_cache import SlotCache, common_prefix_length
from shared.translation.byte_vocabulary import ReadToken
from shared.translation.decoded_text import DecodedText
from shared.translation.lattice import Lattice, inside
from shared.translation.projection import Projection

_N_AHEAD = 4
"""The longest look-ahead, in draft tokens."""
_N_LAST = 4
"""The number of draft tokens at a prompt's end that may be cut differently when the text continues."""
_PLAUSIBLE = 0.02
"""A text may end inside a draft token that the draft model expected with at least this probability."""
_LONGEST_WORD = 64
_SPACES = (b" ", b"\n", b"\t", b"\r")


class Feed(NamedTuple):
    """Draft tokens to decode after the first `n_keep`, with logits for the last `n_logits`."""

    n_keep: int
    tokens: list[ReadToken]
    n_logits: int


NOTHING = Feed(0, [], 0)
"""Returned if a look-ahead would not help."""


class TranslatedSlot:
    """A text and its draft tokens. Offsets are in bytes, from the beginning of the text.

    text, in target tokens       [0 ...................... position)
    decoded, in draft tokens        [base ...... end)      or beyond the position: a look-ahead
    """

    def __init__(
        self, index: int, traits: MemoryTraits, projection: Projection, prefix: Sequence[int]
    ) -> None:
        """prefix: draft tokens before every text (BOS)."""
        self.decoded = DecodedText(SlotCache(index, traits), prefix)
        self._projection = projection
        self._text = bytearray()
        self._ends: list[int] = []  # the offset after each target token
        self._n_agreed = 0  # the number of decoded bytes that are known to equal the text
        self._may_turn = True  # whether a look-ahead at this position may still leave the decoded path
        self._lattice: Lattice | None = None  # kept as long as nothing changes

    def __len__(self) -> int:
        """Return the number of target tokens."""
        return len(self._ends)

    @property
    def position(self) -> int:
        """The end of the text."""
        return len(self._text)

    def keep(self, n_tokens: int) -> None:
        if n_tokens < len(self):
            del self._ends[n_tokens:]
            del self._text[self._ends[-1] if n_tokens else 0 :]
            self._n_agreed = min(self._n_agreed, max(0, self.position - self.decoded.base))
            self._changed()

    def append(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._text += self._projection.target.pieces[token]
            self._ends.append(self.position)
        self._changed()

    def fork(self, source: "TranslatedSlot", n_tokens: int) -> int:
        """Take over the first target tokens of another slot; return the number of draft tokens within them.

        The caller must fill `decoded` next (`DecodedText.copy_from`).
        """
        self._ends = source._ends[:n_tokens]  # noqa: SLF001 - of the same class
        self._text = source._text[: self._ends[-1]]  # noqa: SLF001 - of the same class
        self._n_agreed = 0
        self._changed()
        return source.decoded.n_until(self.position)

    def plan(self, *, unfinished: bool, n_room: int) -> Feed:
        """Return the tokens of the draft model that must still be decoded, up to the end of the text.

        unfinished: more of the prompt follows, so the last tokens are left out and no distribution is needed.
        n_room: the number of draft tokens that fit in the slot. If the text needs more, its beginning is
        dropped.
        """
        feed = self._feed(unfinished=unfinished)
        for base in self._later_bases(n_room):
            if feed.n_keep + len(feed.tokens) <= n_room:
                break
            self._restart(base)
            feed = self._feed(unfinished=unfinished)
        return feed

    def cut(self, feed: Feed) -> list[ReadToken]:
        """Remove what `feed` does not keep; returns the tokens to decode."""
        removed = self.decoded.cut(feed.n_keep)
        self._n_agreed = min(self._n_agreed, len(self.decoded.data))
        self._lattice = None
        return removed + feed.tokens

    def add(self, tokens: Sequence[ReadToken], rows: NDArray[np.float32]) -> None:
        """Add decoded draft tokens; see `DecodedText.add`."""
        self.decoded.add(tokens, rows)
        self._lattice = None

    def lattice(self) -> Lattice:
        """Return the lattice at the end of the text, once the tokens of `plan` are decoded."""
        if self._lattice is None:
            n_last = len(self.decoded) if self._is_covered else self._n_before
            text = bytes(self._text)
            if self._is_covered:
                text += self.decoded.data[self.position - self.decoded.base :]
            path = self.decoded.path(self._n_first, n_last)
            begun = {node.end: token for node in path if (token := self._begun_at(node.end)) is not None}
            self._lattice = Lattice(self._projection, text, self.position, path, begun)
        return self._lattice

    def look_ahead(self, token: int, n_room: int) -> Feed:
        """Return the draft tokens that show, once decoded, whether a longer target token replaces `token`.

        NOTHING if this is settled, or if the look-ahead or the slot would become too long. It is settled if
        `token` is not the beginning of a longer token. It is also settled if a draft token begins at the
        position, and the draft model has the longer tokens, too: it would have chosen such a token.
        """
        lattice = self.lattice()
        reading = lattice.best_reading(token)
        if reading is None or not self._projection.has_longer(reading.data, only_target=reading.begins_token):
            return NOTHING
        n_keep = self._n_first + reading.node
        turns = reading.node < lattice.n_nodes - 1
        is_too_long = n_keep - self._n_before >= _N_AHEAD or n_keep >= n_room
        if is_too_long or (turns and not self._may_turn):
            return NOTHING
        self._may_turn = self._may_turn and not turns
        return Feed(n_keep, [self._written(reading.token)], 1)

    def check_integrity(self) -> None:
        assert not self._ends or self._ends[-1] == self.position
        self.decoded.check_integrity()

    def _changed(self) -> None:
        self._may_turn = True
        self._lattice = None

    @property
    def _n_before(self) -> int:
        """The number of decoded tokens that end at the position or before."""
        return self.decoded.n_until(self.position)

    @property
    def _n_first(self) -> int:
        """The number of decoded tokens before the lattice.

        The lattice includes tokens before the position if a longer token, which ends after the position,
        could replace them.
        """
        n = self._n_before
        draft = self._projection.draft
        while n and self.decoded.following(n - 1):
            first, last = draft.continuing(bytes(self._text[self.decoded.end_of(n - 1) : self.position]))
            if first == last:
                break
            n -= 1
        return n

    @property
    def _is_covered(self) -> bool:
        """True if everything up to the position was decoded."""
        return self._compare() == self.position - self.decoded.base

    def _compare(self) -> int:
        """Return the length of the common prefix of the decoded text and of the text after `base`."""
        base, data = self.decoded.base, self.decoded.data
        n, end = self._n_agreed, min(len(data), self.position - base)
        one, other = data[n:end], self._text[base + n : base + end]
        if one == other:
            self._n_agreed = max(n, end)
        else:
            self._n_agreed += next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
        return self._n_agreed

    def _feed(self, *, unfinished: bool) -> Feed:
        decoded = self.decoded
        if self.position < decoded.base:
            self._restart(0)
        n_before = min(self._n_before, decoded.n_until(decoded.base + self._compare()))
        rest = bytes(self._text[decoded.end_of(n_before) : self.position])
        if unfinished:
            return self._spell(n_before, unfinished=True)
        if not rest and n_before <= len(decoded.prefix):
            return Feed(0, decoded.prefix, min(len(decoded.prefix), 1))
        if decoded.following(n_before) is None:
            return self._spell(n_before, unfinished=False) if rest else self._repeat(n_before)
        if self._is_covered:
            return Feed(len(decoded), [], 0)
        return self._go_on(n_before, rest) or self._spell(n_before, unfinished=False)

    def _repeat(self, n_tokens: int) -> Feed:
        """Decode the last of the first `n_tokens` again, for the distribution after it."""
        return Feed(n_tokens - 1, [self.decoded.tokens[n_tokens - 1]], 1)

    def _go_on(self, n_tokens: int, rest: bytes) -> Feed | None:
        """Read `rest` as the beginning of the token after the first `n_tokens`, or as that token.

        None if the draft model expected neither.
        """
        draft = self._projection.draft
        following = self.decoded.following(n_tokens)
        assert following
        token = draft.token_of(rest)
        exact = 0.0 if token is None else following.of_token(token)
        begun = self._begun_at(self.decoded.end_of(n_tokens))
        longer = inside(self._projection, following, rest, begun).total
        if longer >= max(exact, _PLAUSIBLE):
            return Feed(n_tokens, [], 0)
        if token is not None and exact >= _PLAUSIBLE:
            return Feed(n_tokens, [self._written(token)], 1)
        return None

    def _written(self, token: int) -> ReadToken:
        """Return a draft token that stands for its own bytes."""
        return ReadToken(token, self._projection.draft.pieces[token])

    def _begun_at(self, offset: int) -> int | None:
        """Return the target token of the text that begins at `offset`, if there is one."""
        n = bisect_right(self._ends, offset)
        start = self._ends[n - 1] if n else 0
        if start != offset or n == len(self):
            return None
        return self._projection.target.token_of(bytes(self._text[start : self._ends[n]]))

    def _spell(self, n_valid: int, *, unfinished: bool) -> Feed:
        """Return the text as the draft model's tokenizer cuts it, from the last word that was
        decoded whole.
        """
        decoded = self.decoded
        n_keep = min(n_valid, decoded.n_until(self._word_start(decoded.end_of(n_valid))))
        tokens = self._projection.draft.read(bytes(self._text[decoded.end_of(n_keep) : self.position]))
        if n_keep == 0:
            tokens = decoded.prefix + tokens
        if unfinished:
            n = max(0, len(tokens) - _N_LAST)
            while n and not tokens[n].data:  # the tokens of such a word stay together
                n -= 1
            tokens = tokens[:n]
        known = decoded.tokens[n_keep:n_valid]
        n_equal = common_prefix_length(known, tokens)
        if n_equal == len(tokens) and not unfinished:
            return self._repeat(n_keep + n_equal)
        n_logits = 0 if unfinished else min(len(tokens) - n_equal, _N_LAST)
        return Feed(n_keep + n_equal, tokens[n_equal:], n_logits)

    def _word_start(self, offset: int) -> int:
        """Return the beginning of the word that `offset` lies in; white space begins a word."""
        if bytes(self._text[offset : offset + 1]) in _SPACES:
            return offset
        start = max(self.decoded.base, offset - _LONGEST_WORD)
        found = max(self._text.rfind(space, start, offset) for space in _SPACES)
        return found if found >= 0 else offset

    def _later_bases(self, n_room: int) -> Iterator[int]:
        """Yield the offsets at which the text may begin for the draft model when its context is full."""
        yield self.decoded.end_of(len(self.decoded) // 2)
        # No token is shorter than a byte, but a word that the tokenizer changes may have more tokens.
        for n_each in (2, 8, 32, 128):
            yield max(0, self.position - n_room // n_each)

    def _restart(self, base: int) -> None:
        self.decoded.restart(base)
        self._n_agreed = 0
        self._lattice = None
