"""Time for choices under grammars: what an engine or a drafter has to know of them."""


class GrammarBudget:
    """The time to wait for other processes that follow grammars; this one is for where there are none."""

    def set(self, seconds: float) -> None:
        """Wait at most `seconds` from now on, for all answers together."""
