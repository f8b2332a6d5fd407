"""Projectors (mmproj-*.gguf), with which a model reads images: checks whether a file fits a model, and
chooses among several files.
"""

import importlib.util
import logging
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from shared.errors import ModelLoadError
from shared.model_files.file_kind import PROJECTOR, is_model, read_beginning, values_of

log = logging.getLogger("models")

_SERVED: Final = {
    "gemma3": {"gemma3"},
    "qwen2vl_merger": {"qwen2vl"},
    "qwen2.5vl_merger": {"qwen2vl"},
    "idefics3": {"llama"},
    "pixtral": {"llama", "mistral3"},
}
"""Kinds of projectors whose rows are decoded as `shared.image_span` says, and the models that have them."""
_WHOLE: Final = "gemma3"
"""The kind with which each image is decoded in one pass, because the rows of an image attend to each other;
all images have the same size.
"""
_PATCHES_PER_ROW: Final = 4
"""The number of patches along each side of the square of patches that becomes one row, unless the file has
another number.
"""
QUANTIZATION: Final = re.compile(
    r"[.-]((?:UD-)?(?:I?Q\d\w*|T?B?F16|F32|MXFP4\w*))(?:-\d{5}-of-\d{5})?\.gguf$", re.IGNORECASE
)
"""Matches the end of a file's name, with the type of most weights."""
_REVISION: Final = "models--*/snapshots/*"
"""The folder of a revision of a repository in the hub's cache."""


def kind_of(projector: Path) -> str:
    """Return llama.cpp's name for the kind of a projector; raises ModelLoadError for other files."""
    if not projector.is_file():
        raise ModelLoadError(f"--mmproj: {projector} does not exist. Check the path")
    if (kind := _kind(values_of(projector))) is None:
        raise ModelLoadError(
            f"--mmproj: {projector} is not a projector. Names of projectors usually begin with mmproj"
        )
    return kind


def _kind(values: Mapping[str, object]) -> str | None:
    """Return the kind of a projector from the metadata of its file; None: not a projector."""
    if values.get("general.architecture") != "clip":
        return None
    return str(values.get("clip.projector_type") or values.get("clip.vision.projector_type", ""))


def why_unserved(values: Mapping[str, object]) -> str:
    """Return why no model can use a projector with these metadata; empty: a model may be able to."""
    kind = _kind(values)
    if kind is None or kind in _SERVED:
        return ""
    return f"is of the unsupported kind {kind!r}. Supported: {', '.join(_SERVED)}"


def check_fits(model: Path, projector: Path) -> None:
    """Raise ModelLoadError unless a file's metadata is for a projector of this model."""
    kind = kind_of(projector)
    if reason := why_unserved(values_of(projector)):
        raise ModelLoadError(f"--mmproj: {projector} {reason}")
    architecture = read_beginning(model).get("general.architecture", "")
    if architecture not in _SERVED[kind]:
        raise ModelLoadError(
            f"--mmproj: {projector} ({kind}) does not belong to the model {model} ({architecture})"
        )


def check_batch(projector: Path, max_rows: int) -> None:
    """Raise ModelLoadError if an image needs more than `max_rows` rows in one batch."""
    if kind_of(projector) != _WHOLE:
        return
    values = {"projector.scale_factor": _PATCHES_PER_ROW} | {
        name.removeprefix("clip.vision."): value
        for name, value in values_of(projector).items()
        if isinstance(value, int) and value > 0
    }
    try:
        side = values["image_size"] // values["patch_size"] // values["projector.scale_factor"]
    except KeyError:  # llama.cpp says what is wrong with it
        return
    n_rows = side * side
    if n_rows > max_rows:
        raise ModelLoadError(too_many_rows(n_rows, max_rows))


def too_many_rows(n_rows: int, max_rows: int) -> str:
    """Return the message for a model whose images have too many rows. max_rows: --ubatch-size."""
    return (
        f"--ubatch-size {max_rows}: an image of this model needs a batch of {n_rows} tokens. Set "
        f"--ubatch-size {n_rows} or more"
    )


def nearest_projector(model: str, names: Iterable[str]) -> str | None:
    """Return the projector for `model`, a file of a repository, among all `names` there; None: there is none.

    As in llama-server (common/download.cpp): the projector in the deepest folder that also contains the
    model, then the one with the most similar number of bits. Of F16 and BF16, F16 is chosen, which all CPUs
    process fast.
    """
    folders = PurePosixPath(model).parents
    found = [name for name in names if is_projector(name) and PurePosixPath(name).parent in folders]

    def distance(name: str) -> tuple[int, int, bool, str]:
        n_folders = len(PurePosixPath(name).parts)
        return -n_folders, abs(_n_bits(name) - _n_bits(model)), "bf16" in name.lower(), name

    return min(found, key=distance, default=None)


def projector_beside(model: Path, max_rows: int | None = None) -> Path | None:
    """Return the projector to use for a model when --mmproj is not given; None if there is none. A warning
    reports a projector that cannot be used.

    It is in the same repository of the hub's cache, or in the same folder. In a folder with several models,
    the projector has the name of its model. max_rows: as in `check_batch`; None: any number.
    """
    revision = next((each for each in model.parents if each.match(_REVISION)), None)
    is_cached, root = revision is not None, revision or model.parent
    try:
        names = [path.relative_to(root).as_posix() for path in root.glob("**/*" if is_cached else "*")]
    except OSError:
        return None
    if not is_cached and len({_stem(name) for name in filter(is_model, names)}) > 1:
        names = [name for name in names if _stem(name) == _stem(model.name)]
    chosen = nearest_projector(model.relative_to(root).as_posix(), names)
    return root / chosen if chosen and _is_usable(model, root / chosen, max_rows) else None


def _is_usable(model: Path, projector: Path, max_rows: int | None) -> bool:
    reason: object = (
        "" if _is_built() else ("llama.cpp's image library is missing. Build it with `make images`")
    )
    try:
        check_fits(model, projector)
        if max_rows is not None:
            check_batch(projector, max_rows)
    except ModelLoadError as error:
        reason = error
    if reason:
        log.warning("%s runs without images: %s", model.name, reason)
    return not reason


def _is_built() -> bool:
    """Return whether libmtmd is among llama.cpp's libraries, none of which is loaded for this."""
    spec = importlib.util.find_spec("llama_cpp")
    packaged = spec.submodule_search_locations if spec else None
    folder = os.environ.get("LLAMA_CPP_LIB_PATH") or (f"{packaged[0]}/lib" if packaged else "")
    return any(Path(folder).glob("*mtmd*"))


def is_projector(name: str) -> bool:
    """Return whether a file of this name is a projector."""
    path = PurePosixPath(name)
    return path.suffix == ".gguf" and PROJECTOR in path.name


def _n_bits(name: str) -> int:
    """Return the bits of a weight according to the file's name; 0: unknown."""
    found = QUANTIZATION.search(name)
    digits = found and re.search(r"\d+", found[1])
    return int(digits[0]) if digits else 0


def _stem(name: str) -> str:
    """Return the part of the name that a model and its projector have in common."""
    short = QUANTIZATION.sub("", name.lower()).removesuffix(".gguf")
    return short.replace(PROJECTOR, "").strip("-._")
