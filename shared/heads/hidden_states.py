"""The hidden states of a target's last tokens, which its MTP heads (multi-token prediction) read.

Imports no native library: `hidden_sources` reads the states from llama.cpp.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shared.llama.memory_traits import SlotPart
from shared.llama.span import Pass

_MAX_BYTES = 64 << 20
"""The maximum memory of a slot: an 8k prompt of a model with 5,120 dimensions would take 160 MB."""
_MAX_STATES = 2048


class _SlotStates:
    """Tokens at positions first, first + 1, …, and the hidden state after each."""

    __slots__ = ("first", "states", "tokens")

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.tokens: list[int] = []
        self.states: list[NDArray[np.float32]] = []

    @property
    def end(self) -> int:
        return self.first + len(self.tokens)

    def cut(self, end: int) -> None:
        del self.tokens[max(0, end - self.first) :]
        del self.states[max(0, end - self.first) :]
        self.first = min(self.first, end) if not self.tokens else self.first

    def beginning(self, n_keep: int) -> "_SlotStates":
        """Return a copy, cut to the first `n_keep` tokens of the text."""
        other = _SlotStates(self.first)
        other.tokens, other.states = list(self.tokens), list(self.states)
        other.cut(n_keep)
        return other

    def forget(self, n: int) -> None:
        del self.tokens[:n]
        del self.states[:n]
        self.first += n


class HiddenStates(SlotPart):
    """The hidden states of each slot's last tokens."""

    def __init__(self, n_slots: int, n_embd: int) -> None:
        """n_embd: the number of values in a state."""
        self.token_bytes = 4 * n_embd
        self.n_max = max(1, min(_MAX_STATES, _MAX_BYTES // (4 * n_embd)))
        self.nothing = np.zeros(n_embd, np.float32)
        """The state before the first token of a text."""
        self._slots = [_SlotStates() for _ in range(n_slots)]
        self._stored: dict[int, _SlotStates] = {}

    @property
    def n_bytes(self) -> int:
        """The maximum number of bytes for one slot."""
        return self.n_max * self.nothing.nbytes

    def read(self, n_tokens: int) -> NDArray[np.float32]:
        """Return the states of the last pass, of `n_tokens` tokens; shape (n_tokens, n_embd)."""
        raise NotImplementedError

    def computed(self, together: Pass) -> None:
        states = self.read(sum(part.size for part in together))
        at = 0
        for part in together:
            span = part.span
            self.record(span.slot, span.start, span.tokens, states[at : at + len(span.tokens)])
            at += part.size

    def record(self, slot: int, start: int, tokens: Sequence[int], states: NDArray[np.float32]) -> None:
        """Copy `states`, shape (len(tokens), n_embd): the states after `tokens` from position `start` on."""
        kept = self._slots[slot]
        if start > kept.end or start < kept.first:
            kept = self._slots[slot] = _SlotStates(start)
        kept.cut(start)
        kept.tokens += tokens
        kept.states += list(states.copy())
        kept.forget(max(0, len(kept.tokens) - self.n_max))

    def trimmed(self, slot: int, n_keep: int) -> None:
        self._slots[slot].cut(n_keep)

    def copied(self, source: int, slot: int, n_keep: int) -> None:
        self._slots[slot] = self._slots[source].beginning(n_keep)

    def stored(self, slot: int, key: int, start: int, end: int) -> None:
        kept = self._slots[slot]
        part = kept.beginning(end)
        part.forget(max(0, start - part.first))
        self._stored[key] = part

    def loaded(self, slot: int, key: int, n_keep: int) -> None:
        """Restore the states stored with the snapshot `key`; states of texts from disk are unknown."""
        part, kept = self._stored.get(key, _SlotStates(n_keep)).beginning(n_keep), self._slots[slot]
        if not part.tokens or part.first != kept.end or not kept.tokens:
            self._slots[slot] = part
            return
        kept.tokens += part.tokens
        kept.states += part.states
        kept.forget(max(0, len(kept.tokens) - self.n_max))

    def forget(self, key: int) -> None:
        self._stored.pop(key, None)

    def clear(self) -> None:
        self._stored.clear()

    def first(self, slot: int, tokens: Sequence[int]) -> int:
        """Return the position from which the states of this text are known, up to the last but one of
        `tokens`. If they are unknown, return the position of the last token.
        """
        kept, end = self._slots[slot], len(tokens) - 1
        if kept.end < end or kept.first >= end:
            return end
        if kept.tokens[: end - kept.first] == list(tokens[kept.first : end]):
            return kept.first
        return end

    def state(self, slot: int, position: int) -> NDArray[np.float32]:
        """Return the state after the token at `position`, which must not be before `first`."""
        kept = self._slots[slot]
        return kept.states[position - kept.first]
