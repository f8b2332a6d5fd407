"""Edits of the KV cache between two decodes: trimming a slot, and copying a prefix from another."""

from collections.abc import Iterable
from typing import NamedTuple

from lead.engine.target import Target


class Trim(NamedTuple):
    """`slot` keeps its first `n_keep` tokens."""

    slot: int
    n_keep: int


class Copy(NamedTuple):
    """`slot`, which is empty, gets the first `n_keep` tokens of `source`; they share their cells."""

    source: int
    slot: int
    n_keep: int


CacheEdit = Trim | Copy


def apply_edits(edits: Iterable[CacheEdit], target: Target) -> None:
    """Apply the edits in order: a slot may be copied and then emptied."""
    for edit in edits:
        match edit:
            case Trim(slot, n_keep):
                target.trim(slot, n_keep)
            case Copy(source, slot, n_keep):
                target.copy(source, slot, n_keep)
