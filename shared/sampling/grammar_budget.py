"""The time for choices under grammars, as engines and drafters set it."""


class GrammarBudget:
    """The time to wait for other processes that follow grammars; this implementation is for when there are
    none.
    """

    def set(self, seconds: float) -> None:
        """Allow at most `seconds` from now on, for all answers together."""
