"""The file that backs with another vocabulary download, made at the first request."""

import asyncio
import gzip
import secrets
import shutil
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_path

from shared.cached_files import CacheFolder, remove_oldest, written_whole
from shared.errors import ConfigError, UnavailableError

_N_FILES = 16
"""The number of files of 2 to 16 MB that are kept; the oldest files are deleted."""


class OfferedVocabulary(NamedTuple):
    """A vocabulary in two files, plain and compressed, and their digest.

    The digest is of the files, because models with the same tokens may split texts differently.
    """

    digest: str
    plain: Path
    compressed: Path


class VocabularyOffer:
    """The model's metadata without weights, in the cache folder, plain and compressed."""

    def __init__(self, model: Path) -> None:
        """model: a GGUF file."""
        self._model = model
        self._folder = user_cache_path("llama-duo") / CacheFolder.VOCABULARIES
        self._making = asyncio.Lock()
        self._made: OfferedVocabulary | None = None

    async def files(self) -> OfferedVocabulary:
        """Return the files, which are made again if the cache has been emptied; raises UnavailableError if
        that fails.
        """
        async with self._making:
            if not (self._made and self._made.plain.exists() and self._made.compressed.exists()):
                try:
                    self._made = await asyncio.to_thread(self._make)
                except (ConfigError, OSError) as error:
                    raise UnavailableError(f"cannot write the vocabulary file: {error}") from error
            return self._made

    def _make(self) -> OfferedVocabulary:
        # The front uses llama.cpp only here. It hides the GPUs, which llama.cpp would open.
        from shared.llama.devices import hide_gpus  # noqa: PLC0415
        from shared.llama.gguf_metadata import content_digest, write_vocabulary_file  # noqa: PLC0415

        hide_gpus()
        self._folder.mkdir(parents=True, exist_ok=True)
        new = self._folder / f"{secrets.token_hex(8)}.gguf"
        write_vocabulary_file(self._model, new)
        digest = content_digest(new)
        plain, compressed = self._folder / f"{digest}.gguf", self._folder / f"{digest}.gguf.gz"
        new.replace(plain)
        with (
            written_whole(compressed) as part,
            plain.open("rb") as source,
            gzip.open(part, "wb", compresslevel=6) as target,
        ):
            shutil.copyfileobj(source, target)
        remove_oldest(self._folder, _N_FILES)
        return OfferedVocabulary(digest, plain, compressed)
