"""The text of a call that may turn out to be none."""


class HeldCall:
    """What has been read of a call since its marker, as it was written, until its tool is known.

    False while nothing is held.
    """

    def __init__(self) -> None:
        self.release()

    def __bool__(self) -> bool:
        return bool(self._pieces)

    @property
    def n_separators(self) -> int:
        """The number of characters between markers, and between a marker and the call."""
        return self._n_separators

    def has_marker(self, marker: str) -> bool:
        """Whether this marker is part of it."""
        return marker in self._markers

    def add_marker(self, space: str, marker: str) -> None:
        """A marker and the white space before it. If it turns out to begin no call, both are content."""
        if not self:
            self._n_content = len(space + marker)
        self._pieces.append(space + marker)
        self._markers.append(marker)

    def begin_object(self) -> None:
        """What comes next is a JSON object. If that is no call and had no marker, its brace is content."""
        if not self:
            self._n_content = 1

    def add_separators(self, text: str) -> None:
        """Text between markers, or between a marker and the call; ignored if no marker came before."""
        if self:
            self._pieces.append(text)
            self._n_separators += len(text)

    def add(self, text: str) -> None:
        """Text of the call itself."""
        self._pieces.append(text)

    def release(self) -> None:
        """Hold nothing: it is a call."""
        self._pieces: list[str] = []
        self._markers: list[str] = []
        self._n_separators = 0
        self._n_content = 0

    def reject(self, rest: str) -> tuple[str, str]:
        """Hold nothing: it is no call. Returns what is content, and what, with `rest`, is read again."""
        text, n_content = "".join([*self._pieces, rest]), self._n_content
        self.release()
        return text[:n_content], text[n_content:]
