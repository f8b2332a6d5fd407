"""Models from the Hugging Face hub, chosen as in llama-server and kept in huggingface_hub's own cache.

huggingface_hub is an optional extra; only this module imports it, and only when a model is needed.
"""

import glob
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import httpx

from shared.errors import ConfigError
from shared.model_files.file_kind import BEGINNING_BYTES, is_model, read_name
from shared.model_files.gguf_header import first_values
from shared.model_files.projector_file import nearest_projector, why_unserved

log = logging.getLogger("hub")

_REPOSITORY = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(:(?P<quantization>[\w.-]+))?")
_PREFERRED = ("Q4_K_M", "Q8_0")
"""The quantizations that llama-server prefers if none is given, before the repository's first file."""


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model on the Hugging Face hub, USER/REPO[:QUANT]. file: a name in the repository, which overrides the
    quantization.
    """

    repository: str
    quantization: str | None = None
    file: str | None = None

    @classmethod
    def parse(cls, text: str, file: str | None = None) -> "HubModel":
        """Parse a name such as OWNER/MODEL:QUANT; raises ValueError."""
        found = _REPOSITORY.fullmatch(re.sub(r"^(https?://)?(hf\.co|huggingface\.co)/", "", text))
        if not found:
            raise ValueError(
                "write it as USER/REPO or USER/REPO:QUANT, such as ggml-org/gemma-3-1b-it-GGUF:Q8_0"
            )
        return cls(found["repository"], found["quantization"], file)

    def choose(self, names: Sequence[str]) -> list[str]:
        """Return the names of the model's parts, among all `names` of the repository; raises ConfigError."""
        models = sorted(name for name in names if is_model(name))
        chosen = self._first(models)
        if chosen is None:
            raise ConfigError(self._why_none(models))
        part = read_name(chosen)
        if part is None:
            return [chosen]
        if missing := set(part.all()) - set(names):
            raise ConfigError(f"{self.repository} lacks {', '.join(sorted(missing))}: parts of {chosen}")
        return part.all()

    def _first(self, models: list[str]) -> str | None:
        if self.file:
            return next((name for name in models if name == self.file), None)
        wanted = (self.quantization,) if self.quantization else _PREFERRED
        for quantization in wanted:
            pattern = re.compile(f"{re.escape(quantization)}[.-]", re.IGNORECASE)
            if found := next((name for name in models if pattern.search(name)), None):
                return found
        return None if self.quantization else next(iter(models), None)

    def _why_none(self, models: list[str]) -> str:
        if not models:
            return f"{self.repository} has no GGUF models. Look for a repository with GGUF in its name"
        asked = self.file or f"quantization {self.quantization}"
        return f"{self.repository} has no {asked}. Available: {', '.join(models)}"


@dataclass(frozen=True, slots=True)
class Hub:
    """Access to the hub. A field that is None means huggingface_hub's own default (HF_TOKEN, HF_ENDPOINT,
    HF_HOME).
    """

    token: str | None = None
    offline: bool = False
    endpoint: str | None = None
    cache: Path | None = None

    def fetch(self, model: HubModel, *, with_projector: bool = False) -> Path:
        """Return the first file of `model` in the cache, downloaded unless its newest version is there.

        with_projector: also download the model's projector, if there is a usable one (`projector_beside`).
        Without a connection the cached version is used. Raises ConfigError.
        """
        hub = _huggingface_hub()
        offline = self.offline or hub.constants.HF_HUB_OFFLINE
        names = None if offline else self._list(hub, model.repository)
        if names is None:
            return self._from_cache(model)
        parts = model.choose(names)
        projector = nearest_projector(parts[0], names) if with_projector else None
        if projector and (reason := self._why_useless(hub, model.repository, projector)):
            log.warning("%s runs without images: %s", parts[0], reason)
            projector = None
        wanted = [*parts, projector] if projector else parts
        log.info("%s: %s", model.repository, ", ".join(wanted))
        try:
            folder = hub.snapshot_download(
                model.repository,
                allow_patterns=[glob.escape(name) for name in wanted],
                token=self.token,
                endpoint=self.endpoint,
                cache_dir=self.cache,
            )
        except Exception as error:
            raise ConfigError(f"{model.repository} cannot be downloaded: {_first_line(error)}") from error
        return Path(folder) / parts[0]

    def _list(self, hub: ModuleType, repository: str) -> list[str] | None:
        """Return the names of a repository's files; None if the hub cannot be asked."""
        errors = hub.errors
        try:
            # unlike list_repo_files it does not try again for half a minute where there is no connection
            found = hub.HfApi(token=self.token, endpoint=self.endpoint).model_info(repository)
        except errors.GatedRepoError as error:
            raise ConfigError(
                f"{repository} needs a token. Accept its terms on its page and set HF_TOKEN"
            ) from error
        except errors.RepositoryNotFoundError as error:
            raise ConfigError(
                f"the hub has no repository {repository}. For a private repository, set HF_TOKEN"
            ) from error
        except Exception as error:  # noqa: BLE001 - its HTTP library, and with it the classes, have changed
            log.warning("the hub does not answer. Using the cache: %s", _first_line(error))
            return None
        return [file.rfilename for file in found.siblings or []]

    def _why_useless(self, hub: ModuleType, repository: str, projector: str) -> str:
        """Return why a projector that is not in the cache need not be downloaded; empty: it may be useful."""
        if isinstance(hub.try_to_load_from_cache(repository, projector, self.cache), str):
            return ""
        url = hub.hf_hub_url(repository, projector, endpoint=self.endpoint)
        headers = hub.utils.build_hf_headers(token=self.token)
        try:
            reason = why_unserved(first_values(_beginning(url, headers)))
        except (httpx.HTTPError, OSError) as error:  # the download says what is wrong
            log.debug("cannot read %s on the hub: %s", url, _first_line(error))
            return ""
        return reason and f"{projector} {reason}"

    def search(self, words: str, n: int, seconds: float) -> list[str]:
        """Return the `n` most used repositories with GGUF files for these words; none offline, or if the hub
        does not answer within `seconds`.

        Raises ConfigError without huggingface_hub, whose own retries would take longer and print messages.
        """
        hub = _huggingface_hub()
        if self.offline or hub.constants.HF_HUB_OFFLINE:
            return []
        asked: dict[str, str | int] = {"search": words, "filter": "gguf", "sort": "downloads", "limit": n}
        url = f"{self.endpoint or hub.constants.ENDPOINT}/api/models"
        try:
            found = httpx.get(url, params=asked, timeout=seconds).raise_for_status().json()
            return [str(model["id"]) for model in found]
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            log.debug("searching the hub failed: %s", error)
            return []

    def revisions(self) -> Iterator[tuple[str, str, dict[str, Path]]]:
        """Yield (repository, commit, files by name) for each cached revision, newest first.

        Raises ConfigError without huggingface_hub.
        """
        hub = _huggingface_hub()
        try:
            cached = hub.scan_cache_dir(self.cache).repos
        except hub.errors.CacheNotFound:
            return
        revisions = [
            (repository.repo_id, revision)
            for repository in cached
            if repository.repo_type == "model"
            for revision in repository.revisions
        ]
        for name, revision in sorted(revisions, key=lambda each: -each[1].last_modified):
            yield (
                name,
                revision.commit_hash,
                {
                    file.file_path.relative_to(revision.snapshot_path).as_posix(): Path(file.file_path)
                    for file in revision.files
                },
            )

    def _from_cache(self, model: HubModel) -> Path:
        for repository, revision, paths in self.revisions():
            if repository != model.repository:
                continue
            try:
                return paths[model.choose(list(paths))[0]]
            except ConfigError as error:
                log.debug("%s, revision %s: %s", repository, revision, error)
        reason = "downloads are disabled" if self.offline else "there is no connection to the hub"
        raise ConfigError(f"{model.repository} is not in the hub's cache, and {reason}")


def _huggingface_hub() -> ModuleType:
    try:
        import huggingface_hub  # noqa: PLC0415  (an optional extra)
        import huggingface_hub.constants  # noqa: PLC0415
        import huggingface_hub.errors  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError("-hf needs huggingface_hub. Install it: pip install 'llama-duo[hub]'") from error
    return huggingface_hub


def _beginning(url: str, headers: Mapping[str, str]) -> bytes:
    """Return the first bytes of a file; raises httpx.HTTPError."""
    wanted, data = {"Range": f"bytes=0-{BEGINNING_BYTES - 1}"}, bytearray()
    with httpx.stream("GET", url, headers={**headers, **wanted}, follow_redirects=True) as response:
        response.raise_for_status()
        for chunk in response.iter_raw():
            data += chunk
            if len(data) >= BEGINNING_BYTES:  # also from a server that sends the whole file
                break
    return bytes(data)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
