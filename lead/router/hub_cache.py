"""Lists and deletes the models in the cache of the Hugging Face hub."""

import glob
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from shared.errors import ConfigError
from shared.model_files.file_kind import is_model, parts_of
from shared.model_files.hub import Hub
from shared.model_files.projector_file import QUANTIZATION, is_projector


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model in the hub's cache: `file` of `repository`, at `path`."""

    repository: str
    file: str
    path: Path

    @property
    def name(self) -> str:
        """USER/REPO:QUANT as in `HubModel`. If the file's name has no quantization, QUANT is this name."""
        found = QUANTIZATION.search(self.file)
        return f"{self.repository}:{found[1] if found else PurePosixPath(self.file).stem}"


def cached_models(hub: Hub) -> list[CachedModel]:
    """Return the models in the cache, each in its newest revision; empty without huggingface_hub."""
    found: dict[str, CachedModel] = {}
    with suppress(ConfigError):
        for repository, _, paths in hub.revisions():
            for name in sorted(filter(is_model, paths)):
                model = CachedModel(repository, name, paths[name])
                found.setdefault(model.name, model)
    return list(found.values())


def remove_model(path: Path) -> None:
    """Delete the cached model whose first file is `path`; raises OSError.

    The repository is deleted, too, if no files but projectors are left.
    """
    snapshots = next(folder for folder in path.parents if folder.name == "snapshots")
    for part in parts_of(path):
        inside = part.relative_to(snapshots)
        for link in snapshots.glob(f"*/{glob.escape(str(Path(*inside.parts[1:])))}"):
            link.resolve().unlink(missing_ok=True)
            link.unlink(missing_ok=True)
    left = [each for each in snapshots.rglob("*") if each.is_file() or each.is_symlink()]
    if all(map(is_projector, (each.name for each in left))):
        shutil.rmtree(snapshots.parent)
