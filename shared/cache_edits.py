"""Edits of a model's memory between two decodes."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import NamedTuple, NoReturn, Protocol


class SlotMemory(Protocol):
    """The memory of a model, in slots (`shared.llama.model.Model`).

    Only memories that cannot be trimmed to any length need the methods for checkpoints.
    """

    @abstractmethod
    def trim(self, slot: int, n_keep: int) -> None:
        """Keep the first `n_keep` tokens of a slot."""

    @abstractmethod
    def copy(self, source_slot: int, slot: int, n_keep: int) -> None:
        """Give an empty slot the first `n_keep` tokens of another; see `Copy`."""

    def save(self, slot: int, number: int) -> None:
        """Keep the state of a slot, in place of its earlier one of this `number`."""
        _fail(slot, number)

    def restore(self, source: int, number: int, slot: int) -> None:
        """Give `slot` the state of `source` that `save` kept, with all tokens before it."""
        _fail(source, number, slot)

    def store(self, slot: int, key: int) -> None:
        """Write the state of a slot to host memory, as `key`."""
        _fail(slot, key)

    def load(self, slot: int, key: int) -> None:
        """Go back to the state that was stored as `key`; see `LoadState`."""
        _fail(slot, key)

    def forget(self, key: int) -> None:
        """Free what was stored as `key`."""
        _fail(key)


def _fail(*arguments: int) -> NoReturn:
    raise AssertionError(f"this memory can be trimmed: it needs no checkpoints (of {arguments})")


class Trim(NamedTuple):
    """`slot` keeps its first `n_keep` tokens."""

    slot: int
    n_keep: int


class Copy(NamedTuple):
    """`slot`, which is empty, gets the first `n_keep` tokens of `source`; they share their cells.

    A recurrent state is that of all tokens of `source`: a `LoadState` has to follow.
    """

    source: int
    slot: int
    n_keep: int


class Save(NamedTuple):
    """Keep the state of `slot` for `Restore`, at no cost, as one of a few numbers."""

    slot: int
    number: int


class Restore(NamedTuple):
    """`slot` gets the state of `source` that was kept, with all tokens before it; mostly its own."""

    source: int
    number: int
    slot: int


class StoreState(NamedTuple):
    """The state of `slot` is written to host memory, as `key`."""

    slot: int
    key: int


class LoadState(NamedTuple):
    """`slot` goes back to the state stored as `key`. It must hold the tokens of that state."""

    slot: int
    key: int


class ForgetState(NamedTuple):
    """The state stored as `key` is not needed any more."""

    key: int


CacheEdit = Trim | Copy | Save | Restore | StoreState | LoadState | ForgetState


def loads_last(edits: Iterable[CacheEdit]) -> list[CacheEdit]:
    """The same edits with `LoadState` after all that remove tokens, and `ForgetState` at the end.

    Loading takes cells, and llama.cpp gives it those that the window of another slot has left. Rejected draft
    tokens still count as the end of that window.
    """
    others: list[CacheEdit] = []
    loads: dict[int, LoadState] = {}
    forgets: list[ForgetState] = []
    for edit in edits:
        match edit:
            case LoadState():
                loads[edit.slot] = edit
            case ForgetState():
                forgets.append(edit)
            case _:
                if isinstance(edit, Trim):
                    loads.pop(edit.slot, None)  # the slot is emptied after all
                others.append(edit)
    return [*others, *loads.values(), *forgets]


def apply_edits(edits: Iterable[CacheEdit], memory: SlotMemory) -> None:
    """Apply the edits in order: a slot may be copied and then emptied."""
    for edit in edits:
        match edit:
            case Trim(slot, n_keep):
                memory.trim(slot, n_keep)
            case Copy(source, slot, n_keep):
                memory.copy(source, slot, n_keep)
            case Save(slot, number):
                memory.save(slot, number)
            case Restore(source, number, slot):
                memory.restore(source, number, slot)
            case StoreState(slot, key):
                memory.store(slot, key)
            case LoadState(slot, key):
                memory.load(slot, key)
            case ForgetState(key):
                memory.forget(key)
