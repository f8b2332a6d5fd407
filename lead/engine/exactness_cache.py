"""What was measured for --exact at an earlier start: the next one takes no longer than without.

One file in the cache folder for each digest of all that decides which widths of batches agree: the model's
files, the options, llama.cpp's build and the CPU.
"""

import hashlib
import logging
from pathlib import Path

from platformdirs import user_cache_path

from lead.engine.commands import Load
from lead.engine.events import Exactness
from shared import cpus
from shared.cached_files import written_whole
from shared.llama import library
from shared.models.file_kind import parts_of

log = logging.getLogger("engine")

VERSION = 1
"""Raise this when other widths would be found, or more is asked of them."""


def recall(load: Load, *, with_heads: bool) -> Exactness | None:
    """None if nothing was measured for such a start, or it cannot be read."""
    try:
        path = _path(load, with_heads=with_heads)
        exactness = Exactness.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    log.info("--exact: as measured at an earlier start (%s)", path)
    return exactness


def remember(load: Load, exactness: Exactness, *, with_heads: bool) -> None:
    """For the next start like this one; where nothing can be written, that will measure again."""
    try:
        path = _path(load, with_heads=with_heads)
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as part:
            part.write_text(exactness.model_dump_json())
    except OSError as error:
        log.info("--exact will be measured again at the next start: %s", error)


def _path(load: Load, *, with_heads: bool) -> Path:
    digest = hashlib.sha256()
    for part in parts_of(load.model):
        state = part.stat()
        digest.update(f"{part.absolute()}\0{state.st_size}\0{state.st_mtime_ns}\0".encode())
    facts = (
        VERSION,
        load.options.model_dump_json(exclude={"cache_ram"}),  # as much as is free, which changes no bit
        with_heads,
        bool(load.rpc),
        library.build(),
        cpus.kind(),
    )
    for fact in facts:
        digest.update(f"{fact}\0".encode())
    return user_cache_path("llama-duo") / "exactness" / f"{digest.hexdigest()[:24]}.json"
