"""Finds the models on this machine: in a folder, in the hub's cache, in packages."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lead.router.hub_cache import cached_models
from shared.errors import ConfigError, ModelLoadError
from shared.model_files.builtin import packaged_models
from shared.model_files.file_kind import check_kind, is_model, pooling_of, read_name, size_of
from shared.model_files.hub import Hub

log = logging.getLogger("models")

FOLDER, HUB, PACKAGE = "folder", "hub", "package"
"""The sources of models."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model file. name: the name in requests. path: the file, or its first part. n_bytes: the size of all
    parts.
    """

    name: str
    path: Path
    origin: str
    n_bytes: int


def find_models(folder: Path | None, hub: Hub | None = None) -> dict[str, KnownModel]:
    """Return the models by name; models of the folder take precedence. Raises ConfigError.

    Files that are not models, such as adapters and projectors, are left out.
    """
    found: dict[str, KnownModel] = {}
    for name, path, origin in _places(folder, hub or Hub()):
        if name not in found:
            try:
                if pooling_of(path) is None:
                    check_kind(path)
                n_bytes = size_of(path)
            except (ModelLoadError, OSError) as error:
                log.debug("%s is not served: %s", path, error)
                continue
            found[name] = KnownModel(name, path, origin, n_bytes)
    return dict(sorted(found.items()))


def _places(folder: Path | None, hub: Hub) -> Iterator[tuple[str, Path, str]]:
    """Yield name, file and origin of each possible model."""
    if folder is not None:
        yield from ((name, path, FOLDER) for name, path in _in_folder(folder))
    yield from ((name, path, PACKAGE) for name, path in packaged_models().items())
    yield from ((model.name, model.path, HUB) for model in cached_models(hub))


def _in_folder(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield names and files of the models in a folder and its subfolders, as llama-server's --models-dir
    does; raises ConfigError.
    """
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise ConfigError(f"--models-dir: {folder} cannot be read: {error.strerror}") from error
    for entry in entries:
        if entry.is_dir():
            models = _models_of(entry)
            yield from ((entry.name if len(models) == 1 else _name(path), path) for path in models)
        elif is_model(entry.name) and entry.is_file():  # a pipe would be waited for
            yield _name(entry), entry


def _models_of(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if is_model(path.name) and path.is_file())
    except OSError as error:
        log.warning("%s cannot be read: %s", folder, error.strerror)
        return []


def _name(path: Path) -> str:
    part = read_name(path.name)
    return part.prefix if part else path.stem
