"""The models in the cache of the Hugging Face hub: listed, and deleted."""

import glob
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from shared.errors import ConfigError
from shared.models.file_kind import parts_of
from shared.models.hub import Hub, is_model

_QUANTIZED = re.compile(
    r"[.-]((?:UD-)?(?:I?Q\d\w*|T?B?F16|F32|MXFP4\w*))(?:-\d{5}-of-\d{5})?\.gguf$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model in the hub's cache: `file` of `repository`, at `path`."""

    repository: str
    file: str
    path: Path

    @property
    def name(self) -> str:
        """USER/REPO:QUANT as `HubModel` understands it; without a known quantization the file's name."""
        found = _QUANTIZED.search(self.file)
        return f"{self.repository}:{found[1] if found else PurePosixPath(self.file).stem}"


def cached_models(hub: Hub) -> list[CachedModel]:
    """The models in the cache, the newest revision of each; none without huggingface_hub."""
    found: dict[str, CachedModel] = {}
    with suppress(ConfigError):
        for repository, _, paths in hub.revisions():
            for name in sorted(filter(is_model, paths)):
                model = CachedModel(repository, name, paths[name])
                found.setdefault(model.name, model)
    return list(found.values())


def remove_model(path: Path) -> None:
    """Delete a model in the cache, whose first file is `path`; raises OSError.

    A repository without other files goes with it.
    """
    snapshots = next(folder for folder in path.parents if folder.name == "snapshots")
    for part in parts_of(path):
        inside = part.relative_to(snapshots)
        for link in snapshots.glob(f"*/{glob.escape(str(Path(*inside.parts[1:])))}"):
            link.resolve().unlink(missing_ok=True)
            link.unlink(missing_ok=True)
    if not any(each.is_file() or each.is_symlink() for each in snapshots.rglob("*")):
        shutil.rmtree(snapshots.parent)
