"""Edits of the KV cache between two decodes: what is cut off, and what one slot is given of another."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol


class Trim(NamedTuple):
    """`slot` keeps its first `n_keep` tokens."""

    slot: int
    n_keep: int


class Copy(NamedTuple):
    """`slot`, which is empty, gets the first `n_keep` tokens of `source`; they take no room."""

    source: int
    slot: int
    n_keep: int


Edit = Trim | Copy


class Cache(Protocol):
    """What is edited (`shared.llama.model.Model`)."""

    def trim(self, slot: int, n_keep: int) -> None:
        """Keep the first `n_keep` tokens of a slot."""

    def copy(self, source_slot: int, slot: int, n_keep: int) -> None:
        """Give an empty slot the first `n_keep` tokens of another."""


def carry_out(edits: Iterable[Edit], cache: Cache) -> None:
    """In their order: a slot may be copied and then be given up."""
    for edit in edits:
        match edit:
            case Trim(slot, n_keep):
                cache.trim(slot, n_keep)
            case Copy(source, slot, n_keep):
                cache.copy(source, slot, n_keep)
