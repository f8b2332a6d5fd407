"""Where the models that come with llama-duo are, and the demo's target, grown from one of them.

A step of the shipped target takes less time than its overhead. The demo needs a step that takes as long as a
real model's, so its target is the shipped one grown to 0.4G parameters: made on first use, kept in the user's
cache.
"""

import hashlib
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from platformdirs import user_cache_path

from shared.cached_files import make_cache_folder, remove_abandoned
from shared.errors import ConfigError
from shared.models.gguf_file import Progress, Quantization
from shared.models.grow import VERSION, Shape, grow

# Of the shapes near 0.4G that were measured this one gains most from checking several tokens in a step, and
# f16 gains more than q8_0 or q4_0 (docs/performance.md); the file takes 0.77 GB.
_GROWN_SHAPE = Shape(width=2048, n_layers=6, n_heads=64, n_feed_forward=8192)
_GROWN_QUANTIZATION: Quantization = "f16"
_GROWN_PREFIX = "target-grown-"


def builtin_draft() -> Path:
    """The small draft model, for a back. Raises ConfigError in an installation without it."""
    return _shipped("draft-q8_0.gguf")


def builtin_target() -> Path:
    """The target model as trained. Raises ConfigError in an installation without it."""
    return _shipped("target-q8_0.gguf")


def grown_path() -> Path:
    """Where the demo's target is, or will be; raises ConfigError in an installation without its source.

    The name depends on everything that it is made from.
    """
    return user_cache_path("llama-duo") / f"{_GROWN_PREFIX}{_digest(builtin_target())}.gguf"


def grown_target(progress: Progress | None = None) -> Path:
    """The demo's target: the shipped one's answers at the cost of 0.4G parameters.

    Takes some seconds the first time, and then calls `progress`, which may raise to cancel. The file appears
    when it is whole: any number of processes may ask at once. Raises ConfigError if the cache has no room.
    """
    path = grown_path()
    if not path.is_file():
        make_cache_folder(path.parent)
        grow(builtin_target(), path, _GROWN_SHAPE, _GROWN_QUANTIZATION, progress)
        _remove_old(path)
    return path


def _shipped(name: str) -> Path:
    path = Path(str(files("shared") / "models" / name))
    if not path.is_file():
        raise ConfigError(f"the shipped model {path} is missing: install llama-duo again, unpacked")
    return path


def _digest(source: Path) -> str:
    recipe = f"{VERSION} {_GROWN_SHAPE} {_GROWN_QUANTIZATION}"
    return hashlib.sha256(recipe.encode() + source.read_bytes()).hexdigest()[:16]


def _remove_old(newest: Path) -> None:
    """Delete files of earlier versions, and partial files of killed processes."""
    for path in newest.parent.glob(f"{_GROWN_PREFIX}*.gguf"):
        with suppress(OSError):  # another process may have deleted it, or still have it open on Windows
            if path != newest:
                path.unlink()
    remove_abandoned(newest.parent, f"{_GROWN_PREFIX}*")
