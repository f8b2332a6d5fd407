"""The time for choices under grammars, as engines and drafters set it."""


class GrammarBudget:
    """The time to wait for processes that follow grammars.

    This implementation is for a program without such processes.
    """

    def set(self, seconds: float) -> None:
        """Allow at most `seconds` from now on, for all answers together."""
