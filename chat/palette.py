"""Which colour stands for which source. Pure; the same for streamed text, rendered text and the legend."""

SOURCE_COLOURS = {
    "green": "\x1b[32m",
    "cyan": "\x1b[36m",
    "magenta": "\x1b[35m",
    "yellow": "\x1b[33m",
    "blue": "\x1b[34m",
    "bright_green": "\x1b[92m",
    "bright_cyan": "\x1b[96m",
    "bright_magenta": "\x1b[95m",
}
"""rich's names and what a terminal is sent, in order of a source's first appearance; red is for errors."""

_NAMES = tuple(SOURCE_COLOURS)


class Palette:
    """A source keeps its colour for the session; with more sources than colours they share."""

    def __init__(self) -> None:
        self._chosen: dict[str, str] = {}

    def name_of(self, source: str) -> str:
        """The colour's name."""
        return self._chosen.setdefault(source, _NAMES[len(self._chosen) % len(_NAMES)])

    def escape_of(self, source: str) -> str:
        """What switches a terminal to the colour."""
        return SOURCE_COLOURS[self.name_of(source)]
