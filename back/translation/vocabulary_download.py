"""Downloads the lead's vocabulary, for a draft model with another vocabulary, and caches it."""

import ssl
from pathlib import Path

import httpx
from platformdirs import user_cache_path

from shared.cached_files import CacheFolder, written_whole
from shared.errors import ConfigError, ModelLoadError
from shared.llama.gguf_metadata import content_digest
from shared.llama.vocabulary import Vocabulary
from shared.terminal import one_line

_SECONDS = 30.0
_MAX_BYTES = 256 << 20
"""The maximum number of bytes of a vocabulary; the largest known one has 16 MB."""


def lead_vocabulary(
    lead: str, key: str | None, tls: ssl.SSLContext | None, transport: httpx.BaseTransport | None = None
) -> Vocabulary:
    """Return the vocabulary of the lead at the URL `lead`, from the cache or downloaded; blocks.

    Raises OSError if a retry may succeed, ConfigError if not.
    """
    folder = user_cache_path("llama-duo") / CacheFolder.VOCABULARIES_OF_LEADS
    folder.mkdir(parents=True, exist_ok=True)
    known = {path.stem: path for path in folder.glob("*.gguf") if content_digest(path) == path.stem}
    headers = {"If-None-Match": ", ".join(f'"{digest}"' for digest in known)}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    try:
        with (
            httpx.Client(
                verify=tls or True, timeout=_SECONDS, trust_env=False, transport=transport
            ) as client,
            client.stream("GET", f"{lead}/v1/speculation/vocabulary", headers=headers) as response,
        ):
            path = _save(response, folder, known)
    except httpx.HTTPError as error:
        raise ConnectionError(f"the lead's vocabulary cannot be downloaded: {error}") from error
    return _loaded(path)


def _save(response: httpx.Response, folder: Path, known: dict[str, Path]) -> Path:
    digest = response.headers.get("ETag", "").removeprefix("W/").strip('"')
    if response.status_code == httpx.codes.NOT_MODIFIED and digest in known:
        return known[digest]
    if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        raise ConnectionError("the lead is loading its model")
    if response.status_code != httpx.codes.OK or not digest.isalnum():
        raise ConfigError(f"the lead refuses to send its vocabulary: HTTP {response.status_code}")
    path = folder / f"{digest}.gguf"
    with written_whole(path) as part:
        with part.open("wb") as file:
            for chunk in response.iter_bytes():
                file.write(chunk)
                if file.tell() > _MAX_BYTES:
                    raise ConfigError(f"the lead's vocabulary has more than {_MAX_BYTES} bytes")
        if content_digest(part) != digest:
            raise ConfigError("the lead's vocabulary arrived damaged. Start the back again")
    return path


def _loaded(path: Path) -> Vocabulary:
    try:
        return Vocabulary.load(path)
    except ModelLoadError as error:
        path.unlink(missing_ok=True)
        raise ConfigError(f"the lead's vocabulary cannot be read: {one_line(str(error))}") from error
