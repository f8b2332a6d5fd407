"""An inline drafter whose methods take the names of sequences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lead.engine.drafters.draft_source import InlineDraft, InlineDrafter


@dataclass
class Round:
    """`drafts`: the drafts that have grown."""

    n_tokens: int
    drafts: dict[str, Any]


class ByName:
    def __init__(self, drafter: InlineDrafter[Any]):
        self.drafter = drafter
        self.on_round = drafter.on_round
        self.sequences: dict[str, InlineDraft] = {}

    def open(self, sequence: str, *more):
        self.sequences[sequence] = self.drafter.open(sequence, *more)

    def leave(self, sequence: str):
        self.sequences[sequence].leave()

    def place(self, sequence: str, slot: int, context: Sequence[int]):
        self.sequences[sequence].place(slot, context)

    def n_pending(self, sequence: str):
        return self.sequences[sequence].n_pending

    def draft(self, sequences: Sequence[str], n_max: int) -> Round:
        n_tokens, grown = self.drafter.draft([self.sequences[each] for each in sequences], n_max)
        named = {name: each.continuation for name, each in self.sequences.items() if each in grown}
        return Round(n_tokens, named)
