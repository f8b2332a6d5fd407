"""Saves what slots hold to files, restores and erases it, beside the engine's steps (`POST /slots/N`).

A text goes by way of host memory, as those of `--cache-disk` do: it is stored there in steps, and another
thread writes or reads the file. A slot whose text was restored stands for a text in host memory; whoever goes
on from it has it loaded.
"""

import time
from collections.abc import Callable, Generator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

from lead.engine import slot_files
from lead.engine.commands import ActOnSlot
from lead.engine.engine import Engine
from lead.engine.events import SlotActed
from lead.engine.text_keeper import TextMemory
from shared.cache_edits import Snapshot, apply_edits
from shared.errors import RequestError, UnavailableError
from shared.saved_text import SavedText
from shared.slot_cache import StoredText

T = TypeVar("T")

_LOOK_SECONDS = 0.002
"""How often there is a look whether an action can go on, while the engine is idle."""
_Doing = Generator[None, None, T]
"""What is done in several steps: it goes on after the next one."""


class SlotActions:
    def __init__(
        self,
        engine: Engine,
        memory: TextMemory | None,
        key: str,
        *,
        send: Callable[[SlotActed], None],
        clock: Callable[[], float] = time.monotonic,
        executor: Callable[..., Executor] = ThreadPoolExecutor,
    ) -> None:
        """`memory`: None if texts cannot be stored. key: tells starts apart that compute other texts.

        send: is told what came of each action.
        """
        self._engine, self._memory, self._key, self._clock = engine, memory, key, clock
        self._send = send
        self._thread = executor(1, "saves slots")
        self._doing: _Doing[SlotActed] | None = None

    def begin(self, command: ActOnSlot) -> None:
        """`send` will be told what came of it."""
        assert self._doing is None, "the front asks for one action at a time"
        self._doing = self._act(command)

    def wait(self, now: float) -> float | None:  # noqa: ARG002 - it is always due
        return _LOOK_SECONDS if self._doing else None

    def turn(self, now: float, *, idle: bool) -> float:  # noqa: ARG002 - it goes on in any case
        if self._doing and (acted := self._go_on(self._doing)):
            self._doing = None
            self._send(acted)
        return 0.0

    def _go_on(self, doing: _Doing[SlotActed]) -> SlotActed | None:
        """What came of it, once it is done."""
        try:
            next(doing)
        except StopIteration as done:
            acted: SlotActed = done.value
            return acted
        except (RequestError, slot_files.SlotFileError) as error:
            return SlotActed(reason=str(error))
        except UnavailableError as error:
            return SlotActed(reason=str(error), may_recover=True)
        return None

    def _act(self, command: ActOnSlot) -> _Doing[SlotActed]:
        if command.action == "erase":
            return SlotActed(n_tokens=self._engine.slots.erase(command.slot))
        if self._memory is None:
            raise RequestError("this model keeps no texts in host memory, by way of which they are saved")
        do = self._save if command.action == "save" else self._restore
        return (yield from do(command, self._memory))

    def _save(self, command: ActOnSlot, memory: TextMemory) -> _Doing[SlotActed]:
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
        if (text := self._engine.slots.stored_text(slot)) is None:
            return None
        pieces: list[tuple[Snapshot, memoryview]] = []
        for snapshot in text.snapshots:
            if (view := memory.lend(snapshot.key)) is None:
                for earlier, _ in pieces:
                    memory.take_back(earlier.key)
                return None
            pieces.append((snapshot, view))
        return text, pieces

    def _restore(self, command: ActOnSlot, memory: TextMemory) -> _Doing[SlotActed]:
        slots, texts = self._engine.slots, self._engine.texts
        saved = yield from self._in_thread(slot_files.read_manifest, command.path, self._key)
        saved = saved.model_copy(update={"owner": command.keep_for})
        text = slots.expect_text(command.slot, saved)
        keys = [snapshot.key for snapshot in text.snapshots]
        views = [memory.reserve(key, part.size) for key, part in zip(keys, saved.parts, strict=True)]
        is_right = False
        try:
            n_bytes = yield from self._in_thread(slot_files.read_parts, command.path, self._key, views)
            is_right = True
        finally:
            for key in keys:
                memory.take_back(key)
            apply_edits(texts.arrived(text, is_right=is_right), memory)
        while not slots.give_text(command.slot, text):
            yield
        return SlotActed(n_tokens=len(saved.tokens), n_bytes=n_bytes)

    def _in_thread(self, do: Callable[..., T], *arguments: object) -> _Doing[T]:
        done = self._thread.submit(do, *arguments)
        while not done.done():
            yield
        return done.result()
