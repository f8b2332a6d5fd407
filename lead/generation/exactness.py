"""What is promised of a text, in words."""

from lead.engine.events import Exactness

ALWAYS = "every token is the model's own choice, so a text is an exact sample whatever is drafted"
EXACT = "the same text bit for bit with any backs, with other clients, after a restart"
_ENOUGH_DRAFT = 8
"""Longer drafts seldom pay."""


def promise(exactness: Exactness) -> str:
    """For the log, `GET /props`, the page and `doctor`."""
    if not exactness.is_on:
        return f"{ALWAYS}; --exact would also give {EXACT}: {_offer(exactness)}"
    return f"{ALWAYS}; and {EXACT} (--exact: {_price(exactness)})"


def _offer(exactness: Exactness) -> str:
    if exactness.cost is None:
        return f"not here, or not known ({exactness.reason})"
    return f"a step of one token would take {exactness.cost:.2f} times as long"


def _price(exactness: Exactness) -> str:
    words = f"a step of one token takes {exactness.cost or 1.0:.2f} times as long"
    if exactness.batch_sizes and exactness.batch_sizes.max_draft < _ENOUGH_DRAFT:
        return f"{words}, drafts have at most {exactness.batch_sizes.max_draft} tokens"
    return words
