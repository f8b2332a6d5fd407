"""Saves what slots hold under a name, restores and erases it, beside the engine's steps (`POST /slots/N`).

A text goes by way of host memory, as those of `--cache-disk` do: it is stored there in steps, and another
thread writes or reads its file. A slot whose text was restored stands for a text in host memory; whoever goes
on from it has it loaded.
"""

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from lead.disk_cache.act_on_slot import ActOnSlot, SlotActed
from lead.disk_cache.text_files import DamagedTextError, read_manifest, read_named, write_named
from lead.disk_cache.text_keeper import TextMemory, lend, reserve, take_back
from lead.engine.engine import Engine
from lead.engine.side_jobs import Doing
from shared.cache_edits import apply_edits
from shared.errors import RequestError, UnavailableError
from shared.slot_cache import SavedText, StoredText

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
        self._slots, self._texts = engine.slots, engine.slots.texts
        self._memory, self._key = memory, key
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
            return SlotActed(n_tokens=self._erase(command.slot))
        if self._memory is None:
            raise RequestError("this model keeps no texts in host memory, by way of which they are saved")
        do = self._save if command.action == "save" else self._restore
        return (yield from do(command, self._memory))

    def _save(self, command: ActOnSlot, memory: TextMemory) -> Doing[SlotActed]:
        while (text := self._stored(command.slot)) is None or (pieces := lend(text, (), memory)) is None:
            yield
        saved = text.to_save("")
        try:
            n_bytes = yield from self._in_thread(write_named, command.path, self._key, saved, pieces)
        finally:
            take_back(pieces, memory)
        return SlotActed(n_tokens=len(saved.tokens), n_bytes=n_bytes)

    def _stored(self, index: int) -> StoredText | None:
        """What a slot held last, in host memory; None: not yet, ask again after the next step.

        Raises RequestError, UnavailableError.
        """
        slot = self._slots.idle_slot(index)
        tokens, owner = slot.cache.tokens or slot.moved, slot.cache.owner
        if not tokens:
            raise RequestError(f"slot {index} holds no text", "id_slot")
        if owner is None:
            raise RequestError(f"slot {index} holds a private text, which is never written", "id_slot")
        if slot.cache.tokens:
            if not self._texts.can_store(slot.cache):
                return None
            if n_left := self._texts.store(slot.cache, n_min=1):
                return None
            if n_left is None:
                raise RequestError("there is no room for its text in host memory (--cache-ram)", "id_slot")
        text = self._texts.holding(tokens, owner)
        if text is None or (text.place == "disk" and not self._texts.may_fetch(text)):
            raise RequestError("its text has given way to others in host memory (--cache-ram)", "id_slot")
        if text.place == "disk":
            self._texts.fetch(text)
        return text if text.place == "memory" else None

    def _restore(self, command: ActOnSlot, memory: TextMemory) -> Doing[SlotActed]:
        saved = yield from self._in_thread(read_manifest, command.path, self._key)
        text = self._expected(command, saved)
        pieces = reserve(text, saved.parts, memory)
        is_right = False
        try:
            n_bytes = yield from self._in_thread(read_named, command.path, self._key, pieces)
            is_right = True
        finally:
            take_back(pieces, memory)
            apply_edits(self._texts.arrived(text, is_right=is_right), memory)
        while not self._stands_for(command.slot, text):
            yield
        return SlotActed(n_tokens=len(saved.tokens), n_bytes=n_bytes)

    def _expected(self, command: ActOnSlot, saved: SavedText) -> StoredText:
        """The text that a slot is to hold, for whoever restores it; raises RequestError, UnavailableError."""
        self._slots.idle_slot(command.slot)
        if len(saved.tokens) > self._slots.n_ctx:
            raise RequestError(
                f"its text has {len(saved.tokens)} tokens; the context has {self._slots.n_ctx}"
            )
        text = self._texts.expect(saved.model_copy(update={"owner": command.keep_for}))
        if text is None:
            raise RequestError("there is no room for its text in host memory (--cache-ram)")
        return text

    def _stands_for(self, index: int, text: StoredText) -> bool:
        """Have a slot stand for `text`, in host memory; False: not yet, its own is stored before.

        Raises UnavailableError.
        """
        slot = self._slots.idle_slot(index)
        if self._slots.store_before_loss(slot.cache):
            return False
        slot.cache.keep(0)
        slot.moved, slot.cache.owner = list(text.tokens), text.owner
        return True

    def _erase(self, index: int) -> int:
        """Forget what a slot held last; how many tokens that were. Raises RequestError, UnavailableError."""
        slot = self._slots.idle_slot(index)
        tokens = list(slot.cache.tokens or slot.moved)
        text = self._texts.holding(tokens, slot.cache.owner) if tokens else None
        if text and text.tokens == tokens:
            self._texts.drop(text)
        slot.moved = []
        slot.cache.keep(0)
        return len(tokens)

    def _in_thread(self, do: Callable[..., T], path: Path, *arguments: object) -> Doing[T]:
        """What becomes of a file is said to who asked for it: raises RequestError."""
        done = self._thread.submit(do, path, *arguments)
        while not done.done():
            yield
        writes = do is write_named
        try:
            return done.result()
        except DamagedTextError as error:
            raise RequestError(f"{path.name} {error}") from error
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not writes:
                raise RequestError(f"there is no {path.name}") from None
            verb = "write" if writes else "read"
            raise RequestError(f"cannot {verb} {path.name}: {error.strerror}") from error
