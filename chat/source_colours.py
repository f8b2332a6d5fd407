"""The colour of each draft source, in streamed text, rendered text and the legend. Pure."""

ANSI_COLOURS = {
    "green": "\x1b[32m",
    "cyan": "\x1b[36m",
    "magenta": "\x1b[35m",
    "yellow": "\x1b[33m",
    "blue": "\x1b[34m",
    "bright_green": "\x1b[92m",
    "bright_cyan": "\x1b[96m",
    "bright_magenta": "\x1b[95m",
}
"""rich's names and escape sequences, in the order in which sources get them; red is for errors."""

_NAMES = tuple(ANSI_COLOURS)


class SourceColours:
    """A source keeps its colour for the session; if there are more sources than colours, some share one."""

    def __init__(self) -> None:
        self._chosen: dict[str, str] = {}

    def name_of(self, source: str) -> str:
        """The colour's name."""
        return self._chosen.setdefault(source, _NAMES[len(self._chosen) % len(_NAMES)])

    def escape_of(self, source: str) -> str:
        """The escape sequence of the colour."""
        return ANSI_COLOURS[self.name_of(source)]
