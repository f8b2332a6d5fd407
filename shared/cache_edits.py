"""Edits of a model's memory between two decodes."""

import itertools
from abc import abstractmethod
from collections.abc import Iterable
from typing import NamedTuple, NoReturn, Protocol


class SlotMemory(Protocol):
    """The memory of a model, in slots (`shared.llama.model.Model`).

    Only memories that cannot be trimmed to any length need the methods for checkpoints, and only those that
    a prompt cache stores the methods for texts.
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
        """Free what `store` or `store_text` stored as `key`."""
        _fail(key)

    def store_text(self, slot: int, key: int) -> None:
        """Write all that a slot holds to host memory, as `key`."""
        _fail_to_store(slot, key)

    def load_text(self, slot: int, key: int, n_keep: int) -> None:
        """Give an empty slot the first `n_keep` tokens of what was stored as `key`."""
        _fail_to_store(slot, key, n_keep)

    def store_part(self, slot: int, key: int, start: int, end: int) -> None:
        """Write what a slot holds of its tokens `start` to `end` to host memory, as `key`."""
        _fail_to_store(slot, key, start, end)

    def load_part(self, slot: int, key: int, n_keep: int) -> None:
        """Give a slot, which holds all tokens before it, the part stored as `key`, up to `n_keep` tokens."""
        _fail_to_store(slot, key, n_keep)


def _fail(*arguments: int) -> NoReturn:
    raise AssertionError(f"this memory can be trimmed: it needs no checkpoints (of {arguments})")


def _fail_to_store(*arguments: int) -> NoReturn:
    raise AssertionError(f"this memory stores no texts (of {arguments})")


class Trim(NamedTuple):
    """`slot` keeps its first `n_keep` tokens."""

    slot: int
    n_keep: int

    def apply(self, memory: SlotMemory) -> None:
        """To `memory`."""
        memory.trim(self.slot, self.n_keep)


class Copy(NamedTuple):
    """`slot`, which is empty, gets the first `n_keep` tokens of `source`; they share their cells.

    A recurrent state is that of all tokens of `source`: a `LoadState` has to follow.
    """

    source: int
    slot: int
    n_keep: int

    def apply(self, memory: SlotMemory) -> None:
        """To `memory`."""
        memory.copy(self.source, self.slot, self.n_keep)


class Save(NamedTuple):
    """Keep the state of `slot` for `Restore`, at no cost, as one of a few numbers."""

    slot: int
    number: int

    def apply(self, memory: SlotMemory) -> None:
        """To `memory`."""
        memory.save(self.slot, self.number)


class Restore(NamedTuple):
    """`slot` gets the state of `source` that was kept, with all tokens before it; mostly its own."""

    source: int
    number: int
    slot: int

    def apply(self, memory: SlotMemory) -> None:
        """To `memory`."""
        memory.restore(self.source, self.number, self.slot)


class StoreState(NamedTuple):
    """The state of `slot` is written to host memory, as `key`."""

    slot: int
    key: int

    def apply(self, memory: SlotMemory) -> None:
        """To `memory`."""
        memory.store(self.slot, self.key)


class LoadState(NamedTuple):
    """`slot` goes back to the state stored as `key`. It must hold the tokens of that state."""

    slot: int
    key: int

    def apply(self, memory: SlotMemory) -> None:
        """To `memory`."""
        memory.load(self.slot, self.key)


class ForgetState(NamedTuple):
    """The state or text stored as `key` is not needed any more."""

    key: int

    def apply(self, memory: SlotMemory) -> None:
        """To `memory`."""
        memory.forget(self.key)


class StoreText(NamedTuple):
    """All that `slot` holds is written to host memory, as `key`; the slot keeps it."""

    slot: int
    key: int

    def apply(self, memory: SlotMemory) -> None:
        """To `memory`."""
        memory.store_text(self.slot, self.key)


class LoadText(NamedTuple):
    """`slot`, which is empty, gets the first `n_keep` tokens of the text stored as `key`.

    All of them, where memory cannot be cut back; a `LoadState` may follow.
    """

    slot: int
    key: int
    n_keep: int

    def apply(self, memory: SlotMemory) -> None:
        """To `memory`."""
        memory.load_text(self.slot, self.key, self.n_keep)


class StorePart(NamedTuple):
    """What `slot` holds of its tokens `start` to `end` is written to host memory, as `key`."""

    slot: int
    key: int
    start: int
    end: int

    def apply(self, memory: SlotMemory) -> None:
        """To `memory`."""
        memory.store_part(self.slot, self.key, self.start, self.end)


class LoadPart(NamedTuple):
    """`slot`, which holds the tokens before it, gets the part stored as `key`, up to `n_keep` tokens."""

    slot: int
    key: int
    n_keep: int

    def apply(self, memory: SlotMemory) -> None:
        """To `memory`."""
        memory.load_part(self.slot, self.key, self.n_keep)


CacheEdit = (
    Trim
    | Copy
    | Save
    | Restore
    | StoreState
    | LoadState
    | ForgetState
    | StoreText
    | LoadText
    | StorePart
    | LoadPart
)


def loads_last(edits: Iterable[CacheEdit]) -> list[CacheEdit]:
    """The same edits with what loads after all that remove tokens, and `ForgetState` at the end.

    Loading takes cells, and llama.cpp gives it those that the window of another slot has left. Rejected draft
    tokens still count as the end of that window.
    """
    others: list[CacheEdit] = []
    loads: dict[int, list[CacheEdit]] = {}
    forgets: list[ForgetState] = []
    for edit in edits:
        match edit:
            case LoadText():
                loads[edit.slot] = [edit]
            case LoadPart():
                loads.setdefault(edit.slot, []).append(edit)
            case LoadState():
                texts = [each for each in loads.get(edit.slot, []) if isinstance(each, LoadText)]
                loads[edit.slot] = [*texts, edit]
            case ForgetState():
                forgets.append(edit)
            case _:
                if isinstance(edit, Trim):
                    loads.pop(edit.slot, None)  # the slot is emptied after all
                others.append(edit)
    # A state that a slot goes back to has fewer tokens: what is loaded into other slots gets their cells.
    ordered = sorted(loads.values(), key=lambda edits: isinstance(edits[0], LoadText))
    return [*others, *itertools.chain.from_iterable(ordered), *forgets]


def apply_edits(edits: Iterable[CacheEdit], memory: SlotMemory) -> None:
    """Apply the edits in order: a slot may be copied and then emptied."""
    for edit in edits:
        edit.apply(memory)
