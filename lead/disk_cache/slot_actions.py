"""Saves what slots hold to files, restores and erases it, beside the engine's steps (`POST /slots/N`).

A text goes by way of host memory, as those of `--cache-disk` do: it is stored there in steps, and another
thread writes or reads the file. A slot whose text was restored stands for a text in host memory; whoever goes
on from it has it loaded.
"""

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

from lead.disk_cache import slot_files
from lead.disk_cache.act_on_slot import ActOnSlot, SlotActed
from lead.disk_cache.idle_slots import IdleSlots
from lead.disk_cache.text_keeper import TextMemory
from lead.engine.engine import Engine
from lead.engine.side_jobs import Doing
from shared.cache_edits import Snapshot, apply_edits
from shared.errors import RequestError, UnavailableError
from shared.saved_text import SavedText
from shared.slot_cache import StoredText

T = TypeVar("T")


class SlotActions:
    def __init__(
        self,
        engine: Engine,
        memory: TextMemory | None,
        key: str,
        *,
        executor: Callable[..., Executor] = ThreadPoolExecutor,
    ) -> None:
        """`memory`: None if texts cannot be stored. key: tells starts apart that compute other texts."""
        self._slots, self._memory, self._key = IdleSlots(engine.slots), memory, key
        self._texts = engine.slots.texts
        self._thread = executor(1, "saves slots")
        self._is_busy = False

    def act(self, command: ActOnSlot) -> Doing[SlotActed]:
        """The job of `SideJobs`; one slot at a time."""
        if self._is_busy:
            raise UnavailableError("another slot is being saved or restored: try again in a moment")
        self._is_busy = True
        try:
            return (yield from self._act(command))
        finally:
            self._is_busy = False

    def _act(self, command: ActOnSlot) -> Doing[SlotActed]:
        if command.action == "erase":
            return SlotActed(n_tokens=self._slots.erase(command.slot))
        if self._memory is None:
            raise RequestError("this model keeps no texts in host memory, by way of which they are saved")
        do = self._save if command.action == "save" else self._restore
        return (yield from do(command, self._memory))

    def _save(self, command: ActOnSlot, memory: TextMemory) -> Doing[SlotActed]:
        while (lent := self._lend(command.slot, memory)) is None:
            yield
        text, pieces = lent
        saved = SavedText(name="", owner="", tokens=list(text.tokens), n_prefill=text.n_prefill, parts=())
        try:
            n_bytes = yield from self._in_thread(slot_files.write, command.path, self._key, saved, pieces)
        finally:
            for snapshot, _ in pieces:
                memory.take_back(snapshot.key)
        return SlotActed(n_tokens=len(saved.tokens), n_bytes=n_bytes)

    def _lend(
        self, slot: int, memory: TextMemory
    ) -> tuple[StoredText, list[tuple[Snapshot, memoryview]]] | None:
        """What a slot holds, in host memory; None: not all of it is there yet."""
        if (text := self._slots.stored_text(slot)) is None:
            return None
        pieces: list[tuple[Snapshot, memoryview]] = []
        for snapshot in text.snapshots:
            if (view := memory.lend(snapshot.key)) is None:
                for earlier, _ in pieces:
                    memory.take_back(earlier.key)
                return None
            pieces.append((snapshot, view))
        return text, pieces

    def _restore(self, command: ActOnSlot, memory: TextMemory) -> Doing[SlotActed]:
        saved = yield from self._in_thread(slot_files.read_manifest, command.path, self._key)
        saved = saved.model_copy(update={"owner": command.keep_for})
        text = self._slots.expect_text(command.slot, saved)
        keys = [snapshot.key for snapshot in text.snapshots]
        views = [memory.reserve(key, part.size) for key, part in zip(keys, saved.parts, strict=True)]
        is_right = False
        try:
            n_bytes = yield from self._in_thread(slot_files.read_parts, command.path, self._key, views)
            is_right = True
        finally:
            for key in keys:
                memory.take_back(key)
            apply_edits(self._texts.arrived(text, is_right=is_right), memory)
        while not self._slots.give_text(command.slot, text):
            yield
        return SlotActed(n_tokens=len(saved.tokens), n_bytes=n_bytes)

    def _in_thread(self, do: Callable[..., T], *arguments: object) -> Doing[T]:
        done = self._thread.submit(do, *arguments)
        while not done.done():
            yield
        return done.result()
