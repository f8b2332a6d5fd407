"""A terminal in memory: what a person would see."""

import io

import pyte


class EmulatedTerminal(io.StringIO):
    """Takes what a program writes, newlines as a terminal's driver sends them."""

    def __init__(self, columns=40, rows=12):
        super().__init__()
        self.screen = pyte.HistoryScreen(columns, rows, history=1000, ratio=0.5)
        self._stream = pyte.Stream(self.screen)

    def isatty(self):
        return True

    def write(self, text):
        self._stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    def size(self):
        return self.screen.columns, self.screen.lines

    @property
    def rows(self):
        """All rows, those that have scrolled away too, without blank ones at the end."""
        past = ["".join(row[i].data for i in range(self.screen.columns)) for row in self.screen.history.top]
        return "\n".join(row.rstrip() for row in [*past, *self.screen.display]).rstrip("\n").split("\n")

    def getvalue(self):
        return "\n".join(self.rows) + "\n"
