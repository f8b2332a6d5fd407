"""A queue of characters."""

from collections import deque


class TextPieces:
    """Text that is taken from the front, and may be put back there, without copying the rest.

    False while there is none.
    """

    def __init__(self, text: str) -> None:
        self._pieces = deque([(text, 0)] if text else [])  # with how many characters of it were taken

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def append(self, text: str) -> None:
        """Add `text` at the end."""
        if text:
            self._pieces.append((text, 0))

    def put_back(self, text: str) -> None:
        """Add `text` at the front."""
        if text:
            self._pieces.appendleft((text, 0))

    def take(self, n: int) -> str:
        """At most `n` of the first characters; IndexError if there are none."""
        text, at = self._pieces.popleft()
        if at + n < len(text):
            self._pieces.appendleft((text, at + n))
        return text[at : at + n]
