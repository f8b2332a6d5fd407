"""The seam to the processes that follow grammars: how long to wait for them."""

from typing import Protocol


class WaitsForGrammars(Protocol):
    """Of `shared.sampling.remote_grammar.Patience`."""

    def grant(self, seconds: float) -> None:
        """All questions together may take so long from now on."""


class NoWait:
    """Where no grammar is followed by another process."""

    def grant(self, seconds: float) -> None:
        """Nothing is asked."""
