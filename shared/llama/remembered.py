"""What was measured of a model, kept in the cache folder for the next start like this one.

One file for each digest of all that decides what is found: the model's files, llama.cpp's build, the CPU and
other devices, and what the measurement itself depends on.
"""

import hashlib
import logging
import math
import time
from pathlib import Path
from typing import Generic, TypeVar

from platformdirs import user_cache_path
from pydantic import BaseModel

from shared import cpus
from shared.cached_files import CacheFolder, remove_oldest, written_whole
from shared.llama import devices, library
from shared.models.file_kind import parts_of

log = logging.getLogger("llama")

T = TypeVar("T", bound=BaseModel)

_N_FILES = 256
"""Of a kilobyte or two each; the oldest are deleted."""


def start_digest(model: Path, *facts: object) -> str:
    """Of a start with this model, this llama.cpp and these devices; `facts`: what else tells starts apart."""
    digest = hashlib.sha256()
    for part in parts_of(model):
        state = part.stat()
        digest.update(f"{part.absolute()}\0{state.st_size}\0{state.st_mtime_ns}\0".encode())
    for fact in (*facts, library.build(), cpus.kind(), *devices.descriptions()):
        digest.update(f"{fact}\0".encode())
    return digest.hexdigest()[:24]


class Remembered(Generic[T]):
    def __init__(self, folder: CacheFolder, kind: type[T], model: Path, *facts: object) -> None:
        """facts: what else decides what is found; their texts tell them apart."""
        self._kind = kind
        self.path = user_cache_path("llama-duo") / folder / f"{start_digest(model, *facts)}.json"

    def recall(self, max_age: float = math.inf) -> T | None:
        """None if nothing was measured for such a start within `max_age` seconds, or it cannot be read."""
        try:
            if time.time() - self.path.stat().st_mtime > max_age:
                return None
            return self._kind.model_validate_json(self.path.read_bytes())
        except (OSError, ValueError):
            return None

    def keep(self, found: T) -> None:
        """For the next start like this one; where nothing can be written, that measures again."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(self.path) as part:
                part.write_text(found.model_dump_json())
            remove_oldest(self.path.parent, _N_FILES)
        except OSError as error:
            log.info("%s: to be measured again at the next start: %s", self.path.parent.name, error)
