"""How far a drafter goes: its room, and what the lead says that pays."""

from dataclasses import dataclass
from typing import Self

_LEAST_WORTH = 0.02
"""A branch that is on the committed text less than once in fifty times is not worth its decodes."""

_RUNNERS_UP = 2
"""With the shipped pair 22 to 30 % of recovered tokens are the runner-up, 7 to 12 % the one after it."""
_BRANCH_TOKENS = 6
"""About as many as the lead may check at once after it has left the main line."""
_BESIDE = 1
"""A second token in a batch costs 1.0 to 1.3 times one alone, a third already up to 1.8 times, and it is the
main line that pays."""


@dataclass(frozen=True, slots=True)
class DrafterOptions:
    """`n_window` is the most tokens of one sequence that the model can see at once.

    While some sequence drafts, the text of others is read in chunks of at most `n_chunk` tokens a step. A
    draft stops where the product of its confidences falls below `min_confidence`. Each sequence has up to
    `n_branches` side branches of at most `n_branch_tokens` tokens, of which `n_beside` are decoded together
    with one of the main line. The model needs `n_model_slots` slots and `n_cells` cells in its cache.
    """

    n_slots: int
    n_window: int
    n_ahead: int
    n_chunk: int = 64
    min_confidence: float = 0.0
    n_branches: int = 0
    n_branch_tokens: int = _BRANCH_TOKENS
    n_beside: int = _BESIDE

    @classmethod
    def sharing(cls, n_cells: int, *, n_slots: int, n_train: int, n_ahead: int, n_branches: int) -> Self:
        """Divide a cache of `n_cells` for a model that was trained to see `n_train` tokens.

        Where that leaves too little to read, branches are given up first.
        """
        share = n_cells // n_slots
        room = n_branches * _BRANCH_TOKENS
        if room > share // 4:
            n_branches = room = 0
        return cls(n_slots, min(share - room, n_train), n_ahead, n_branches=n_branches)

    @property
    def n_model_slots(self) -> int:
        return self.n_slots * (1 + self.n_branches)

    @property
    def n_cells(self) -> int:
        """A branch shares the cells of what is before it."""
        return self.n_slots * (self.n_window + self.n_branches * self.n_branch_tokens)

    @property
    def n_choices(self) -> int:
        """How many choices to look at for each token."""
        return 1 + _RUNNERS_UP if self.n_branches else 1

    @property
    def n_at_once(self) -> int:
        """About as many tokens as the lead checks in one step: the others are for the step after it."""
        return max(1, self.n_ahead // 2)

    @property
    def least_worth(self) -> float:
        """Tokens that are on the committed text with a smaller chance are not drafted in branches."""
        return max(_LEAST_WORTH, self.min_confidence / 2)
