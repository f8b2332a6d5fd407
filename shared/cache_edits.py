"""Edits of a model's memory between two decodes, and snapshots of its slots."""

import itertools
from abc import abstractmethod
from collections.abc import Iterable
from typing import Literal, NamedTuple, Protocol


class Snapshot(NamedTuple):
    """A copy of a slot's tokens from `start` to `end`, identified by `key`.

    * device: the state after the last token, on the device, with all cells. It is taken at no cost. `key` is
      one of the slot's places for snapshots (`MemoryTraits.n_step_checkpoints` per slot, numbered over all
      slots). Cutting the slot back frees its snapshots of longer texts.
    * state: the state in host memory, without the cells of attention over the whole text.
    * text: these tokens in host memory, with all their cells.
    """

    kind: Literal["device", "state", "text"]
    key: int
    end: int
    start: int = 0


class SlotMemory(Protocol):
    """The memory of a model, in slots (`shared.llama.model.Model`).

    Memory that can be trimmed to any length needs no states. Only a model with a prompt cache stores texts.
    """

    @abstractmethod
    def trim(self, slot: int, n_keep: int) -> None:
        """Keep the first `n_keep` tokens of a slot."""

    @abstractmethod
    def copy(self, source_slot: int, slot: int, n_keep: int) -> None:
        """Give the empty `slot` the first `n_keep` tokens of another slot; see `Copy`."""

    def store(self, slot: int, snapshot: Snapshot) -> None:
        """Take a snapshot of a slot, which replaces an earlier snapshot in the same place."""
        raise AssertionError(f"this memory keeps no {snapshot} of slot {slot}")

    def restore(self, slot: int, snapshot: Snapshot, n_keep: int) -> None:
        """Give a slot the first `n_keep` tokens that the snapshot covers; see `Restore`."""
        raise AssertionError(f"this memory has no {snapshot} for {n_keep} tokens of slot {slot}")

    def forget(self, key: int) -> None:
        """Free a snapshot in host memory."""
        raise AssertionError(f"this memory has no snapshot {key}")


class Trim(NamedTuple):
    """Keep only the first `n_keep` tokens of `slot`."""

    slot: int
    n_keep: int


class Copy(NamedTuple):
    """Give the empty `slot` the first `n_keep` tokens of `source`; the two slots then share cells.

    A recurrent state covers all tokens of `source`: for fewer tokens, a state must be loaded.
    """

    source: int
    slot: int
    n_keep: int


class Store(NamedTuple):
    """Take a snapshot of `slot`, which keeps its contents."""

    slot: int
    snapshot: Snapshot


class Restore(NamedTuple):
    """Set `slot` to the first `n_keep` tokens of a text, at most to the end of the snapshot.

    A part of a text is loaded into a slot that holds exactly the tokens before its `start`. It is loaded up
    to `n_keep` if the memory can be trimmed, otherwise whole.
    """

    slot: int
    snapshot: Snapshot
    n_keep: int


class Forget(NamedTuple):
    """Free the snapshot in host memory."""

    key: int


CacheEdit = Trim | Copy | Store | Restore | Forget


def loads_last(edits: Iterable[CacheEdit]) -> list[CacheEdit]:
    """Return the edits in another order: loads from host memory after all removals, and `Forget` at the end.

    llama.cpp loads into cells that have left another slot's window. Until rejected draft tokens are removed,
    they count as the end of that window.
    """
    others: list[CacheEdit] = []
    loads: dict[int, list[Restore]] = {}
    forgets: list[Forget] = []
    for edit in edits:
        match edit:
            case Restore() if edit.snapshot.kind != "device":
                # What was to be loaded before a state, or the beginning of another text, is gone with it.
                is_part = edit.snapshot.kind == "text" and edit.snapshot.start
                texts = [each for each in loads.get(edit.slot, []) if each.snapshot.kind == "text"]
                loads[edit.slot] = [*(texts if is_part or edit.snapshot.kind == "state" else []), edit]
            case Forget():
                forgets.append(edit)
            case _:
                if isinstance(edit, Trim):
                    loads.pop(edit.slot, None)  # the slot is emptied after all
                others.append(edit)
    # A state that a slot goes back to has fewer tokens: what is loaded into other slots gets their cells.
    ordered = sorted(loads.values(), key=lambda each: each[0].snapshot.kind == "text")
    return [*others, *itertools.chain.from_iterable(ordered), *forgets]


def moved_texts(edits: Iterable[CacheEdit]) -> list[Snapshot]:
    """Return the texts, or parts of texts, that `edits` store and load."""
    moves = (edit.snapshot for edit in edits if isinstance(edit, Store | Restore))
    return [snapshot for snapshot in moves if snapshot.kind == "text"]


def apply_edits(edits: Iterable[CacheEdit], memory: SlotMemory) -> None:
    """Apply the edits in order, because a slot may be copied and then emptied."""
    for edit in edits:
        match edit:
            case Trim():
                memory.trim(*edit)
            case Copy():
                memory.copy(*edit)
            case Store():
                memory.store(*edit)
            case Restore():
                memory.restore(*edit)
            case Forget():
                memory.forget(*edit)
