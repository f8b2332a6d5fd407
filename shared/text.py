"""From the bytes of tokens to text that can be shown: whole characters only, nothing of a stop string."""

import codecs
from collections.abc import Sequence


class Utf8Decoder:
    """Decodes bytes that arrive in pieces; a character split over pieces appears with its last byte."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, data: bytes) -> str:
        """The characters that `data` completes; invalid bytes become U+FFFD."""
        return self._decoder.decode(data)

    def flush(self) -> str:
        """What is left at the end: U+FFFD if a character was never completed."""
        return self._decoder.decode(b"", final=True)


class StopFinder:
    """Finds the earliest of some strings in a growing text and holds back what may be the start of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._longest = max(map(len, self._stops), default=0)
        self._tail = ""  # the last characters of the text, as many as a stop string can still reach back to

    def push(self, text: str) -> tuple[int, str | None]:
        """Add `text`. Returns (n_held, stop).

        Without a stop, the last `n_held` characters of all text so far may begin one: do not show them yet.
        With one, n_held counts the characters from the stop string's start to the end of the text.
        """
        window = self._tail + text
        found = [(at, stop) for stop in self._stops if (at := window.find(stop)) >= 0]
        if found:
            at, stop = min(found, key=lambda pair: (pair[0], -len(pair[1])))
            return len(window) - at, stop
        n_held = max((_overlap(window, stop) for stop in self._stops), default=0)
        self._tail = window[-(self._longest - 1) :] if self._longest > 1 else ""
        return n_held, None


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that is a proper beginning of `stop`."""
    for n in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:n]):
            return n
    return 0
