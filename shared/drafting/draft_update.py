"""What a drafter says of a draft that has grown."""

from dataclasses import dataclass
from typing import Literal

Urgency = Literal["immediate", "soon", "batched"]


@dataclass(frozen=True, slots=True)
class DraftUpdate:
    """The draft of a sequence has grown.

    `immediate`: it has all the tokens that the lead verifies in one step, or all that it will get. `soon`:
    the lead may be waiting for these tokens, and for a few more.
    """

    sequence: str
    urgency: Urgency
