"""A disk that holds texts, and a thread for it that works late."""

import functools
import itertools
import random
from concurrent.futures import Executor, Future

from lead.disk_cache.text_files import DamagedTextError, FolderNews
from shared.slot_cache import SavedPart, SavedText


class FakeTextFiles:
    """A disk that outlives engines. error_rate: how often it fails, or loses or damages a text."""

    n_max = 10_000

    def __init__(self, rng: random.Random, error_rate=0.0):
        self._rng, self._error_rate = rng, error_rate
        self._numbers = itertools.count()
        self.texts: dict[str, SavedText] = {}
        self._named: set[str] = set()
        self._seen: dict[str, SavedText] = {}
        self.parts: dict[str, bytes] = {}
        self.folder = "a fake"
        self.n_read = self.n_failed = 0

    def open_again(self):
        """Open the disk for another engine, which has seen none of its texts."""
        self._seen = {}

    def look(self):
        new = [text for name, text in self.texts.items() if self._seen.get(name) is not text]
        self._seen = dict(self.texts)
        return FolderNews(new, self._named - self.texts.keys())

    def write(self, text, pieces, pace):
        self._fail(OSError("the disk is full"))
        parts = []
        for snapshot, piece in pieces:
            if isinstance(piece, SavedPart):
                if piece.file not in self.parts:
                    raise FileNotFoundError(piece.file)
                parts.append(piece)
                continue
            pace(len(piece))
            kind, _, end, start = snapshot
            file = f"{text.name}-{next(self._numbers)}"
            self.parts[file] = bytes(piece)
            parts.append(SavedPart(kind=kind, start=start, end=end, file=file, size=len(piece), digest=""))
        self.delete(text.name, kept={part.file for part in parts})
        self.texts[text.name] = text.model_copy(update={"parts": tuple(parts)})
        self._named.add(text.name)
        self._seen[text.name] = self.texts[text.name]
        return self.texts[text.name]

    def read(self, text, into):
        for part, (_, view) in zip(text.parts, into, strict=True):
            self._fail(FileNotFoundError(part.file))
            view[:] = self.parts[part.file]
            self._fail(DamagedTextError(part.file))
            self.n_read += 1

    def touch(self, name):
        pass

    def delete(self, name, kept=()):
        self.texts.pop(name, None)
        for file in [file for file in self.parts if file.startswith(f"{name}-") and file not in kept]:
            del self.parts[file]

    def _fail(self, error):
        if self._rng.random() < self._error_rate:
            self.n_failed += 1
            raise error


class LateExecutor(Executor):
    """Runs a call in this thread when its result is looked at for the `n_late`th time."""

    def __init__(self, n_late):
        self._n_late = n_late

    def submit(self, do, /, *args):
        return LateFuture(self._n_late, functools.partial(do, *args))


class LateFuture(Future):
    def __init__(self, n_late, do):
        super().__init__()
        self._n_left, self._do = n_late, do

    def done(self):
        self._n_left -= 1
        if self._n_left < 0 and not super().done():
            try:
                self.set_result(self._do())
            except Exception as error:  # noqa: BLE001 - as executors do
                self.set_exception(error)
        return super().done()

    def exception(self, timeout=None):
        while not self.done():
            pass
        return super().exception(timeout)
