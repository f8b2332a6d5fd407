"""Brings texts of the prompt cache to disk, and back, beside the engine's steps (`--cache-disk`).

The engine decides which text is worth it (`shared.text_store`), `TextFiles` knows the files; here is when,
and in which thread. A text is read into host memory and checked before the engine loads any of it. Whatever
fails costs the text only: the model reads it anew.

The folder decides what is on disk: whoever has written or deleted something, the engine learns of it by a
look. No thread gives way to other programs: one that does may hold the interpreter's lock while it is not
running, and the loop would wait for it.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from lead.disk_cache.text_files import FolderNews, TextFiles, TextPieces, new_name
from lead.engine.engine import Engine
from shared.cache_edits import SlotMemory, apply_edits
from shared.slot_cache import SavedPart, SavedText, StoredText

log = logging.getLogger("engine")

T = TypeVar("T")

_BYTES_PER_SECOND = 128 << 20
"""The most that is written, so that other programs have something of the disk."""
_SETTLED_SECONDS = 0.3
"""What slots hold is stored after so long without a request: a client may send the next one at once."""
_LOOK_SECONDS = 1.0
"""How often there is a look at what is to be written or deleted, and what others have."""
_WRITING_SECONDS, _READING_SECONDS = 0.05, 0.002
"""How often there is a look whether that is done."""
_RETRY_SECONDS = 300.0
"""After which a disk that is full or fails is tried again."""
_CLOSE_SECONDS = 5.0
"""The most that the end of the engine is delayed: the front kills it after 10 s."""


class TextMemory(SlotMemory, Protocol):
    """Snapshots in host memory, for other threads (`shared.llama.stored_states.StoredStates`)."""

    def lend(self, key: int) -> memoryview | None:
        """The bytes of a snapshot until `take_back`; None: it is not stored (yet), or lent already."""

    def take_back(self, key: int) -> None:
        """What was lent or reserved is not read or written any more."""

    def reserve(self, key: int, size: int) -> memoryview:
        """A new snapshot of `size` bytes, to be written."""


def lend(text: StoredText, known: Sequence[SavedPart], memory: TextMemory) -> TextPieces | None:
    """All of a text, of which `known` parts are on disk; None: the engine has not stored all of it yet."""
    pieces: TextPieces = []
    for snapshot in text.snapshots:
        on_disk = next((part for part in known if part.holds(snapshot)), None)
        piece = on_disk or memory.lend(snapshot.key)
        if piece is None:
            take_back(pieces, memory)
            return None
        pieces.append((snapshot, piece))
    return pieces


def reserve(text: StoredText, parts: Sequence[SavedPart], memory: TextMemory) -> TextPieces:
    """Room for all of a text, which is to be read from `parts`."""
    snapshots = zip(text.snapshots, parts, strict=True)
    return [(snapshot, memory.reserve(snapshot.key, part.size)) for snapshot, part in snapshots]


def take_back(pieces: TextPieces, memory: TextMemory) -> None:
    """What was lent or reserved."""
    for snapshot, piece in pieces:
        if isinstance(piece, memoryview):
            memory.take_back(snapshot.key)


class _Job(NamedTuple, Generic[T]):
    """What another thread does with the `pieces` of `text`."""

    text: StoredText
    pieces: TextPieces
    done: Future[T]


class TextKeeper:
    """A context: when it is left without an error, what is not on disk yet is written, for some seconds."""

    def __init__(
        self,
        engine: Engine,
        files: TextFiles,
        memory: TextMemory,
        clock: Callable[[], float] = time.monotonic,
        executor: Callable[..., Executor] = ThreadPoolExecutor,
    ) -> None:
        """`engine` knows all texts that are on disk from now on; raises OSError. `clock`: as the loop's."""
        self._engine, self._files, self._memory, self._clock = engine, files, memory, clock
        self._reader = executor(1, "reads texts")
        self._writer = executor(1, "writes texts")  # deletes and looks, too
        self._saving: _Job[SavedText] | None = None
        self._reading: list[_Job[None]] = []
        self._looking: Future[FolderNews] | None = None
        self._names: set[str] = set()  # of the texts on disk that the engine has known
        self._left_out: set[StoredText] = set()  # no room for them on disk, until they are used again
        self._idle_since: float | None = 0.0  # None: somebody is served
        self._is_settled = True  # what slots hold has been stored since
        self._has_more = False  # to be written at the next look
        self._look_at = 0.0
        self._retry_at = 0.0  # not written before
        self._has_failed = False  # which is said once
        self._hurry = threading.Event()  # the engine ends: at no pace
        self._stop = threading.Event()  # not at all any more
        self._take_in(files.look())
        log.info("cache on disk: %d found in %s", len(self._names), files.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        self._hurry.set()
        if failed is None:
            self._mark_used()
            self._save_all(self._clock() + _CLOSE_SECONDS)
        self._stop.set()
        self._writer.shutdown()
        self._reader.shutdown()

    def turn(self, now: float, *, idle: bool) -> float:
        self._finish_reading()
        self._start_reading()
        self._finish_saving(now)
        self._finish_looking()
        if not idle:
            if self._idle_since is not None and not self._looking:  # nobody has looked meanwhile
                with contextlib.suppress(OSError):
                    self._take_in(self._files.look())
            self._idle_since, self._is_settled = None, False
        elif self._idle_since is None:
            self._idle_since = now
        if now >= self._look_at and not self._saving:
            self._look_at = now + _LOOK_SECONDS
            self._mark_used()
            self._delete_dropped()
            if not self._start_saving(now) and not idle:
                self._start_looking()
        if not self._is_settled and self._idle_since is not None and not self._settles_in(now):
            self._is_settled = self._engine.slots.store_all()
            self._has_more, self._look_at = True, now  # in the next step, when they are stored
        return _READING_SECONDS if self._reading else 0.0

    def wait(self, now: float) -> float | None:
        if self._reading:
            return _READING_SECONDS
        if self._saving or self._looking:
            return _WRITING_SECONDS
        if not self._is_settled:
            return 0.0 if self._idle_since is None else self._settles_in(now)
        return max(0.0, self._look_at - now) if self._has_more else None

    def _settles_in(self, now: float) -> float:
        return max(0.0, (self._idle_since or 0.0) + _SETTLED_SECONDS - now)

    # From disk

    def _start_looking(self) -> None:
        self._looking = self._looking or self._writer.submit(self._files.look)

    def _finish_looking(self) -> None:
        if self._looking and self._looking.done():
            done, self._looking = self._looking, None
            with contextlib.suppress(OSError):
                self._take_in(done.result())

    def _take_in(self, news: FolderNews) -> None:
        self._engine.slots.texts.adopt(*news.texts)
        self._names.update(saved.name for saved in news.texts)
        gone = news.gone
        if self._saving and self._saving.text.saved:  # the job says what became of that one
            gone = gone - {self._saving.text.saved.name}
        self._left_out.update(self._engine.slots.texts.lose(gone))
        self._names -= gone

    def _start_reading(self) -> None:
        for text in self._engine.slots.texts.pop_wanted():
            assert text.saved
            pieces = reserve(text, text.saved.parts, self._memory)
            done = self._reader.submit(self._files.read, text.saved, pieces)
            self._reading.append(_Job(text, pieces, done))

    def _finish_reading(self) -> None:
        for job in [job for job in self._reading if job.done.done()]:
            self._reading.remove(job)
            take_back(job.pieces, self._memory)
            error = job.done.exception()
            if error:
                log.warning("a text on disk is lost, and will be read anew: %s", error)
            apply_edits(self._engine.slots.texts.arrived(job.text, is_right=error is None), self._memory)

    # To disk

    def _start_saving(self, now: float) -> bool:
        """Returns whether something is being written now."""
        text = self._engine.slots.texts.unsaved(but=self._left_out)
        self._has_more = text is not None
        if text is None or now < self._retry_at:
            return False
        pieces = lend(text, text.saved.parts if text.saved else (), self._memory)
        if pieces is None:
            return False
        if (
            sum(each.size if isinstance(each, SavedPart) else len(each) for _, each in pieces)
            > self._files.n_max
        ):
            take_back(pieces, self._memory)
            self._left_out.add(text)
            return False
        saved = text.to_save(text.saved.name if text.saved else new_name())
        self._names.add(saved.name)
        done = self._writer.submit(self._files.write, saved, pieces, self._pace)
        self._saving = _Job(text, pieces, done)
        return True

    def _pace(self, n_bytes: int) -> None:
        """In the thread that writes; raises InterruptedError."""
        if self._stop.is_set():
            raise InterruptedError("the engine ends")
        self._hurry.wait(n_bytes / _BYTES_PER_SECOND)

    def _finish_saving(self, now: float) -> None:
        if not self._saving or not self._saving.done.done():
            return
        job, self._saving = self._saving, None
        take_back(job.pieces, self._memory)
        error = job.done.exception()
        if error is None:
            self._engine.slots.texts.mark_saved(job.text, job.done.result())
            self._start_looking()  # others may have given way
            self._has_failed, self._look_at = False, now  # there may be more
        elif isinstance(error, FileNotFoundError) and job.text.saved:  # another lead deleted its beginning
            self._engine.slots.texts.mark_saved(job.text, None)
        else:
            self._retry_at = now + _RETRY_SECONDS
            if not self._has_failed:
                log.warning("no texts are written to disk for a while: %s", error)
            self._has_failed = True

    def _mark_used(self) -> None:
        """What was used, also from host memory, is the last to give way on disk."""
        for text in self._engine.slots.texts.pop_used():
            self._left_out.discard(text)
            if text.saved:
                self._writer.submit(self._files.touch, text.saved.name)

    def _delete_dropped(self) -> None:
        """Files of texts that the engine knows no more."""
        kept = {text.saved.name for text in self._engine.slots.texts.texts if text.saved}
        for name in self._names - kept:
            self._writer.submit(self._files.delete, name)
        self._names &= kept
        self._left_out.intersection_update(self._engine.slots.texts.texts)

    def _save_all(self, until: float) -> None:
        """As much as can be written until then."""
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
