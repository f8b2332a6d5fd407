"""The file that backs of another vocabulary download, made when the first one asks for it."""

import asyncio
import gzip
import secrets
import shutil
from pathlib import Path

from platformdirs import user_cache_path

from shared.errors import ConfigError, UnavailableError
from shared.llama.vocabulary import Vocabulary
from shared.llama.vocabulary_file import write_vocabulary_file


class VocabularyOffer:
    """The model's metadata without weights, in the cache folder, plain and compressed."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._model = vocabulary.info.path
        self._folder = user_cache_path("llama-duo") / "vocabularies"
        self._plain = self._folder / f"{vocabulary.identify().fingerprint}.gguf"
        self._compressed = self._plain.with_suffix(".gguf.gz")
        self._making = asyncio.Lock()
        self._made = False

    async def path(self, *, compressed: bool) -> Path:
        """The file; raises UnavailableError if it cannot be written."""
        async with self._making:
            if not self._made:
                try:
                    await asyncio.to_thread(self._make)
                except (ConfigError, OSError) as error:
                    raise UnavailableError(f"the vocabulary's file cannot be made: {error}") from error
                self._made = True
        return self._compressed if compressed else self._plain

    def _make(self) -> None:
        """Also if it is there: another model with the same vocabulary may have written it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        write_vocabulary_file(self._model, self._plain)
        part = self._compressed.with_suffix(f".{secrets.token_hex(4)}.part")
        try:
            with self._plain.open("rb") as source, gzip.open(part, "wb", compresslevel=6) as compressed:
                shutil.copyfileobj(source, compressed)
            part.replace(self._compressed)
        finally:
            part.unlink(missing_ok=True)
