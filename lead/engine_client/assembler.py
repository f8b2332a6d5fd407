"""Turns committed tokens into text for a client: whole characters only, and no part of a stop string."""

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lead.engine.events import Committed, TokenProbabilities


@dataclass(frozen=True, slots=True)
class TextToken:
    """The text that a token added. source: the source of its draft; None: it was not drafted."""

    token: int
    text: str
    source: str | None
    probabilities: TokenProbabilities | None = None


class Assembler:
    """Holds back text that is not certain yet: part of a character, or a possible beginning of a
    stop string.
    """

    def __init__(self, piece: Callable[[int], bytes], stops: Sequence[str]) -> None:
        self._piece = piece
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._finder = StopFinder(stops)
        self._held: list[TextToken] = []
        self.n_tokens = 0
        """The number of tokens in the text; tokens after a stop string do not count."""
        self.has_new_line = False
        self.stop: str | None = None
        """The stop string that ended the text."""

    def push(self, step: Committed) -> list[TextToken]:
        """Add a step's tokens; return the tokens whose text is certain now, none after a stop string."""
        released: list[TextToken] = []
        for i, token in enumerate(step.tokens):
            if self.stop is not None:
                break
            source = step.sources[i] if i < step.n_accepted else None
            probabilities = step.probabilities[i] if step.probabilities else None
            released += self._push_token(token, source, probabilities)
        return released

    def finish(self) -> list[TextToken]:
        """End the sequence; return the tokens held back, unless they are part of a stop string."""
        if self.stop is None and (rest := self._utf8.decode(b"", final=True)):
            self._held.append(TextToken(-1, rest, None))
        held, self._held = self._held, []
        return held

    def _push_token(
        self, token: int, source: str | None, probabilities: TokenProbabilities | None
    ) -> list[TextToken]:
        self.n_tokens += 1
        text = self._utf8.decode(self._piece(token))
        self.has_new_line = self.has_new_line or "\n" in text
        self._held.append(TextToken(token, text, source, probabilities))
        n_uncertain, self.stop = self._finder.push(text)
        if self.stop is not None:
            self._cut(n_uncertain)
            return self.finish()
        return self._release(n_uncertain)

    def _cut(self, n: int) -> None:
        """Remove the last `n` characters. A token without text of its own belongs to the token after it."""
        n_left = sum(len(held.text) for held in self._held) - n
        kept = []
        for held in self._held:
            if n_left <= 0:
                break
            kept.append(replace(held, text=held.text[:n_left]))
            n_left -= len(held.text)
        self._held = kept

    def _release(self, n_uncertain: int) -> list[TextToken]:
        """Remove and return the first tokens, as long as all their text is certain."""
        n_left = sum(len(held.text) for held in self._held)
        n = 0
        for held in self._held:
            n_left -= len(held.text)
            if n_left < n_uncertain:
                break
            n += 1
        released, self._held = self._held[:n], self._held[n:]
        return released


class StopFinder:
    """Finds the earliest of several stop strings, or a beginning of one, in a growing text."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._beginnings = [_Beginning(stop) for stop in self._stops]
        self._longest = max(map(len, self._stops), default=0)
        self._tail = ""  # the last characters of the text, with which a stop string may have begun

    def push(self, text: str) -> tuple[int, str | None]:
        """Add `text`; return (n_held, stop).

        stop None: no stop string was found. The last `n_held` characters of the text may begin one, so do not
        show them yet. Otherwise n_held counts the characters from the beginning of the stop string to the end
        of the text.
        """
        window = self._tail + text
        found = [(at, stop) for stop in self._stops if (at := window.find(stop)) >= 0]
        if found:
            at, stop = min(found, key=lambda pair: (pair[0], -len(pair[1])))
            return len(window) - at, stop
        n_held = max((beginning.push(text) for beginning in self._beginnings), default=0)
        self._tail = window[-(self._longest - 1) :] if self._longest > 1 else ""
        return n_held, None


class _Beginning:
    """Tracks the longest beginning of a stop string at the end of a text, in constant time per character.

    The algorithm of Knuth, Morris and Pratt (SIAM J. Comput. 6, 1977); its table is filled as far as needed.
    """

    def __init__(self, stop: str) -> None:
        self._stop = stop
        self._shorter = [0]  # by n: the length of the longest end of stop[:n] that also begins stop
        self._n = 0

    def push(self, text: str) -> int:
        """Add `text`, which must not complete the stop string; return the length of the beginning
        at the end.
        """
        for character in text:
            self._n = self._next(self._n, character)
            if self._n == len(self._shorter):
                self._shorter.append(self._next(self._shorter[-1], character) if self._n > 1 else 0)
        return self._n

    def _next(self, n: int, character: str) -> int:
        while n and self._stop[n] != character:
            n = self._shorter[n]
        return n + (self._stop[n] == character)
