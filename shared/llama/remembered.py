"""Measurements of a model, cached on disk for later starts with the same key (`start_key`)."""

import logging
import math
import time
from typing import Generic, TypeVar

from platformdirs import user_cache_path
from pydantic import BaseModel

from shared.cached_files import CacheFolder, remove_oldest, written_whole

log = logging.getLogger("llama")

T = TypeVar("T", bound=BaseModel)

_N_FILES = 256
"""The maximum number of files, of one or two kilobytes each; the oldest files are deleted."""


class Remembered(Generic[T]):
    """The cached measurement of one kind, for starts with one key."""

    def __init__(self, folder: CacheFolder, kind: type[T], key: str) -> None:
        """key: the key of all inputs that determine the measurement."""
        self._kind = kind
        self.key = key
        self.path = user_cache_path("llama-duo") / folder / f"{key}.json"

    def recall(self, max_age: float = math.inf) -> T | None:
        """Return the cached measurement if it is at most `max_age` seconds old; None: there is none."""
        try:
            if time.time() - self.path.stat().st_mtime > max_age:
                return None
            return self._kind.model_validate_json(self.path.read_bytes())
        except (OSError, ValueError):
            return None

    def keep(self, found: T) -> None:
        """Cache a measurement. If that fails, later starts measure again."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(self.path) as part:
                part.write_text(found.model_dump_json())
            remove_oldest(self.path.parent, _N_FILES)
        except OSError as error:
            log.info("cannot save %s, so the next start measures again: %s", self.path.parent.name, error)
