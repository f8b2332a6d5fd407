"""Moves texts to disk and back between the engine's steps: for `--cache-disk`, and for saved slots.

All texts pass through host memory. The engine stores a text there during a step. Another thread writes the
file. A file is read into host memory and checked before the engine loads any of it. `shared.text_store` knows
the texts, `text_files` the files; this module decides when to move them, and in which thread.

`TextKeeper`: the engine decides which texts are worth keeping. A failure costs only the text: the model reads
it again. The folder decides what is on disk; the engine learns of other programs' changes by looking there.

`SlotActions`: a client saves a slot's text under a name, restores it, and erases it (`POST /slots/N`). A
restored text is kept in host memory, and loaded when a sequence continues it.

No thread lowers its priority: it might hold the interpreter's lock while it is not running, and the loop
would wait for it.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from lead.disk_cache.act_on_slot import ActOnSlot, SlotActed
from lead.disk_cache.text_files import (
    Buffers,
    DamagedTextError,
    FolderNews,
    TextFiles,
    TextPieces,
    new_name,
    read_manifest,
    read_named,
    write_named,
)
from lead.engine.engine import Engine
from lead.engine.side_jobs import SteppedJob
from shared.cache_edits import SlotMemory, Snapshot, apply_edits
from shared.diagnostics.findings import count
from shared.errors import RequestError, UnavailableError
from shared.slot_cache import SavedPart, SavedText, StoredText

log = logging.getLogger("engine")

T = TypeVar("T")

_BYTES_PER_SECOND = 128 << 20
"""The maximum rate of writing, which leaves some of the disk's bandwidth to other programs."""
_SETTLED_SECONDS = 0.3
"""A slot's text is stored after this time without a request, because a client may send the next one at once.
"""
_LOOK_SECONDS = 1.0
"""The time between looks for texts to write or delete, and for other programs' changes."""
_WRITING_SECONDS, _READING_SECONDS = 0.05, 0.002
"""The times between looks for the end of writing and of reading."""
_RETRY_SECONDS = 300.0
"""The time after which a full or failing disk is tried again."""
_CLOSE_SECONDS = 5.0
"""The maximum time that the engine's end is delayed: the front kills it after 10 s."""


class TextMemory(SlotMemory, Protocol):
    """Snapshots in host memory, for use by other threads (`shared.llama.stored_states.StoredStates`)."""

    def lend(self, key: int) -> memoryview | None:
        """Lend the bytes of a snapshot until `take_back`; None: it is not stored (yet), or lent already."""

    def take_back(self, key: int) -> None:
        """End the lending or reservation of a snapshot, whose bytes are no longer read or written."""

    def reserve(self, key: int, size: int) -> memoryview:
        """Return a new snapshot of `size` bytes, to be filled."""


def _lend(text: StoredText, known: Sequence[SavedPart], memory: TextMemory) -> TextPieces | None:
    """Return all of a text, of which `known` parts are on disk; None: some of it is not stored yet."""
    pieces: list[tuple[Snapshot, memoryview | SavedPart]] = []
    for snapshot in text.snapshots:
        on_disk = next((part for part in known if part.holds(snapshot)), None)
        piece = on_disk or memory.lend(snapshot.key)
        if piece is None:
            _take_back(pieces, memory)
            return None
        pieces.append((snapshot, piece))
    return pieces


def _reserve(text: StoredText, parts: Sequence[SavedPart], memory: TextMemory) -> Buffers:
    """Reserve memory for a whole text, which is then read from `parts`."""
    snapshots = zip(text.snapshots, parts, strict=True)
    return [(snapshot, memory.reserve(snapshot.key, part.size)) for snapshot, part in snapshots]


def _take_back(pieces: TextPieces, memory: TextMemory) -> None:
    """Take back the memory that was lent or reserved."""
    for snapshot, piece in pieces:
        if isinstance(piece, memoryview):
            memory.take_back(snapshot.key)


class _Job(NamedTuple, Generic[T]):
    """Work of another thread on the `pieces` of `text`."""

    text: StoredText
    pieces: TextPieces
    done: Future[T]


class TextKeeper:
    """Moves texts between host memory and disk.

    A context manager: on exit without an error it writes, for some seconds, texts that are not on disk yet.
    """

    def __init__(
        self,
        engine: Engine,
        files: TextFiles,
        memory: TextMemory,
        clock: Callable[[], float] = time.monotonic,
        executor: Callable[..., Executor] = ThreadPoolExecutor,
    ) -> None:
        """Report all texts on disk to `engine`; raises OSError. clock: the clock of the engine's loop."""
        self._engine, self._texts = engine, engine.slots.texts
        self._files, self._memory, self._clock = files, memory, clock
        self._reader = executor(1, "reads texts")
        self._writer = executor(1, "writes texts")  # deletes and looks, too
        self._saving: _Job[SavedText] | None = None  # the write in progress
        self._reading: list[_Job[None]] = []  # reads in progress
        self._looking: Future[FolderNews] | None = None  # the look at the folder in progress
        self._names: set[str] = set()  # texts on disk that the engine knows
        # When texts in slots are stored; None: sequences are running, inf: texts have been stored since.
        self._settles_at: float | None = math.inf
        self._has_more = False  # there is another text to write
        self._look_at = 0.0  # time of the next look at the folder
        self._retry_at = 0.0  # after a failure, no write before this time; 0: the last write did not fail
        self._at_full_speed = threading.Event()  # the engine ends: write at full speed
        self._stop = threading.Event()  # stop writing
        self._take_in(files.look())
        log.info("cache on disk: found %s in %s", count(len(self._names), "text"), files.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        self._at_full_speed.set()
        if failed is None:
            self._mark_used()
            self._save_all(self._clock() + _CLOSE_SECONDS)
        self._stop.set()
        self._writer.shutdown()
        self._reader.shutdown()

    def run_due(self, now: float, *, idle: bool) -> float:
        self._finish_reading()
        self._start_reading()
        self._finish_saving(now)
        self._finish_looking()
        if not idle:
            if self._settles_at is not None and not self._looking:  # no look is in progress
                with contextlib.suppress(OSError):
                    self._take_in(self._files.look())
            self._settles_at = None
        elif self._settles_at is None:
            self._settles_at = now + _SETTLED_SECONDS
        if now >= self._look_at and not self._saving:
            self._look_at = now + _LOOK_SECONDS
            self._mark_used()
            self._delete_dropped()
            if not self._start_saving(now) and not idle:
                self._start_looking()
        if self._settles_at is not None and now >= self._settles_at:
            if self._engine.slots.store_all():
                self._settles_at = math.inf
            self._has_more, self._look_at = True, now  # in the next step, when they are stored
        return _READING_SECONDS if self._reading else 0.0

    def seconds_until_due(self, now: float) -> float | None:
        if self._reading:
            return _READING_SECONDS
        if self._saving or self._looking:
            return _WRITING_SECONDS
        if self._settles_at != math.inf:
            return max(0.0, (self._settles_at or 0.0) - now)
        return max(0.0, self._look_at - now) if self._has_more else None

    # From disk

    def _start_looking(self) -> None:
        self._looking = self._looking or self._writer.submit(self._files.look)

    def _finish_looking(self) -> None:
        if self._looking and self._looking.done():
            done, self._looking = self._looking, None
            with contextlib.suppress(OSError):
                self._take_in(done.result())

    def _take_in(self, news: FolderNews) -> None:
        self._texts.add_saved(*news.texts)
        self._names.update(saved.name for saved in news.texts)
        gone = news.gone
        if self._saving and self._saving.text.saved:  # the result of the job decides about this text
            gone = gone - {self._saving.text.saved.name}
        self._texts.mark_deleted(gone)
        self._names -= gone

    def _start_reading(self) -> None:
        for text in self._texts.pop_wanted():
            assert text.saved
            pieces = _reserve(text, text.saved.parts, self._memory)
            done = self._reader.submit(self._files.read, text.saved, pieces)
            self._reading.append(_Job(text, pieces, done))

    def _finish_reading(self) -> None:
        for job in [job for job in self._reading if job.done.done()]:
            self._reading.remove(job)
            _take_back(job.pieces, self._memory)
            error = job.done.exception()
            if error:
                log.warning(
                    "a text on disk is lost, so its next request processes the whole prompt: %s", error
                )
            apply_edits(self._texts.arrived(job.text, is_right=error is None), self._memory)

    # To disk

    def _start_saving(self, now: float) -> bool:
        """Start to write the next text, if any; return whether a text is being written now."""
        text = self._texts.unsaved()
        self._has_more = text is not None
        if text is None or now < self._retry_at:
            return False
        pieces = _lend(text, text.saved.parts if text.saved else (), self._memory)
        if pieces is None:
            return False
        n_bytes = sum(each.size if isinstance(each, SavedPart) else len(each) for _, each in pieces)
        if n_bytes > self._files.n_max:
            _take_back(pieces, self._memory)
            text.is_left_out = True
            return False
        saved = text.to_save(text.saved.name if text.saved else new_name())
        self._names.add(saved.name)
        done = self._writer.submit(self._files.write, saved, pieces, self._pace)
        self._saving = _Job(text, pieces, done)
        return True

    def _pace(self, n_bytes: int) -> None:
        """Wait after `n_bytes` in the writing thread; raises InterruptedError when the engine ends."""
        if self._stop.is_set():
            raise InterruptedError("the engine ends")
        self._at_full_speed.wait(n_bytes / _BYTES_PER_SECOND)

    def _finish_saving(self, now: float) -> None:
        if not self._saving or not self._saving.done.done():
            return
        job, self._saving = self._saving, None
        _take_back(job.pieces, self._memory)
        error = job.done.exception()
        if error is None:
            self._texts.mark_saved(job.text, job.done.result())
            self._start_looking()  # others may have given way
            self._retry_at, self._look_at = 0.0, now  # there may be more
        elif isinstance(error, FileNotFoundError) and job.text.saved:  # another lead deleted its beginning
            self._texts.mark_saved(job.text, None)
        else:
            if not self._retry_at:
                log.warning("writing texts to disk is paused: %s", error)
            self._retry_at = now + _RETRY_SECONDS

    def _mark_used(self) -> None:
        """Mark texts that were used, even from host memory, so that they are deleted last on disk."""
        for text in self._texts.pop_used():
            if text.saved:
                self._writer.submit(self._files.touch, text.saved.name)

    def _delete_dropped(self) -> None:
        """Delete the files of texts that the engine no longer knows."""
        kept = {text.saved.name for text in self._texts.texts if text.saved}
        for name in self._names - kept:
            self._writer.submit(self._files.delete, name)
        self._names &= kept

    def _save_all(self, until: float) -> None:
        """Write as many texts as possible until the time `until`."""
        is_stored = not self._engine.idle
        while not is_stored and self._clock() < until:
            is_stored = self._engine.slots.store_all()
            self._engine.next(self._clock())
            apply_edits(self._engine.pop_edits(), self._memory)
        while (left := until - self._clock()) > 0:
            if self._saving:
                with contextlib.suppress(TimeoutError):
                    self._saving.done.exception(left)
                self._finish_saving(self._clock())
            elif not self._start_saving(self._clock()):
                break


class SlotActions:
    def __init__(
        self,
        engine: Engine,
        memory: TextMemory | None,
        key: str,
        *,
        executor: Callable[..., Executor] = ThreadPoolExecutor,
    ) -> None:
        """memory: None if texts cannot be stored. key: distinguishes starts that compute different texts."""
        self._slots, self._texts = engine.slots, engine.slots.texts
        self._memory, self._key = memory, key
        self._thread = executor(1, "saves slots")
        self._is_busy = False

    def act(self, command: ActOnSlot) -> SteppedJob[SlotActed]:
        """Perform the action, for one slot at a time, as a job of `SideJobs`."""
        if self._is_busy:
            raise UnavailableError("another slot is being saved or restored. Try again in a moment")
        self._is_busy = True
        try:
            if command.action == "erase":
                return SlotActed(n_tokens=self._erase(command.slot))
            if self._memory is None:
                raise RequestError(
                    "this model cannot keep texts in host memory, so its slots cannot be saved"
                )
            do = self._save if command.action == "save" else self._restore
            return (yield from do(command, self._memory))
        finally:
            self._is_busy = False

    def _save(self, command: ActOnSlot, memory: TextMemory) -> SteppedJob[SlotActed]:
        while (text := self._stored(command.slot)) is None or (pieces := _lend(text, (), memory)) is None:
            yield
        saved = text.to_save("")
        try:
            n_bytes = yield from self._in_thread(write_named, command.path, self._key, saved, pieces)
        finally:
            _take_back(pieces, memory)
        return SlotActed(n_tokens=len(saved.tokens), n_bytes=n_bytes)

    def _stored(self, index: int) -> StoredText | None:
        """Return the last text of a slot, in host memory; None: ask again after the next step.

        Raises RequestError, UnavailableError.
        """
        slot = self._slots.idle_slot(index)
        tokens, owner = slot.cache.tokens or slot.evicted_tokens, slot.cache.owner
        if not tokens:
            raise RequestError(f"slot {index} holds no text", "id_slot")
        if owner is None:
            raise RequestError(f"slot {index} holds a private text, which is never saved", "id_slot")
        if slot.cache.tokens:
            if not self._texts.can_store(slot.cache):
                return None
            if n_left := self._texts.store(slot.cache, n_min=1):
                return None
            if n_left is None:
                raise RequestError(
                    f"the text of slot {index} does not fit into host memory (--cache-ram)", "id_slot"
                )
        text = self._texts.holding(tokens, owner)
        if text is None or (text.place == "disk" and not self._texts.may_fetch(text)):
            raise RequestError(
                f"the text of slot {index} was removed from host memory to make room (--cache-ram)", "id_slot"
            )
        self._texts.fetch(text)
        return text if text.place == "memory" else None

    def _restore(self, command: ActOnSlot, memory: TextMemory) -> SteppedJob[SlotActed]:
        saved = yield from self._in_thread(read_manifest, command.path, self._key)
        text = self._expected(command, saved)
        pieces = _reserve(text, saved.parts, memory)
        is_right = False
        try:
            n_bytes = yield from self._in_thread(read_named, command.path, self._key, saved, pieces)
            is_right = True
        finally:
            _take_back(pieces, memory)
            apply_edits(self._texts.arrived(text, is_right=is_right), memory)
        while not self._stands_for(command.slot, text):
            yield
        return SlotActed(n_tokens=len(saved.tokens), n_bytes=n_bytes)

    def _expected(self, command: ActOnSlot, saved: SavedText) -> StoredText:
        """Return the text to restore for `command.keep_for`; raises RequestError, UnavailableError."""
        self._slots.idle_slot(command.slot)
        if len(saved.tokens) > self._slots.n_ctx:
            raise RequestError(
                f"the text in {command.path.name} has {len(saved.tokens)} tokens, "
                f"but the context has {self._slots.n_ctx}"
            )
        text = self._texts.expect(saved.model_copy(update={"owner": command.keep_for}))
        if text is None:
            raise RequestError(f"the text in {command.path.name} does not fit into host memory (--cache-ram)")
        return text

    def _stands_for(self, index: int, text: StoredText) -> bool:
        """Let a slot represent `text`, in host memory; False: the slot's own text is stored first."""
        slot = self._slots.idle_slot(index)
        if self._slots.store_before_loss(slot.cache):
            return False
        slot.cache.keep(0)
        slot.evicted_tokens, slot.cache.owner = list(text.tokens), text.owner
        return True

    def _erase(self, index: int) -> int:
        """Forget the last text of a slot; return its length. Raises RequestError, UnavailableError."""
        slot = self._slots.idle_slot(index)
        tokens = list(slot.cache.tokens or slot.evicted_tokens)
        text = self._texts.holding(tokens, slot.cache.owner) if tokens else None
        if text and text.tokens == tokens:
            self._texts.drop(text)
        slot.evicted_tokens = []
        slot.cache.keep(0)
        return len(tokens)

    def _in_thread(self, do: Callable[..., T], path: Path, *arguments: object) -> SteppedJob[T]:
        """Run `do` on a file in a thread; return its result, or raise RequestError for the client."""
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
                raise RequestError(f"{path.name} does not exist") from None
            verb = "write" if writes else "read"
            raise RequestError(f"cannot {verb} {path.name}: {error.strerror}") from error
