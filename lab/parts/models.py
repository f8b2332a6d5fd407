"""The benchmark's models, grown from the shipped pair and kept in the user's cache.

A target gives the shipped target's answers at a big model's cost. A draft model is grown until its step costs
the wanted share of the target's step, which is found by measuring.
"""

import hashlib
import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from gguf import GGUFReader
from platformdirs import user_cache_path

from lab.planning.pinned_process import pinned_process
from lab.planning.timing import measure_steps
from shared.convert.gguf_file import Quantization
from shared.convert.grow import VERSION, Shape, grow
from shared.cpus import parse_cpus
from shared.errors import ConfigError
from shared.model_files.builtin import builtin_draft, builtin_target, grown_target, named_model
from shared.progress import Progress
from shared.settings.model_options import ModelOptions

TARGET_SHAPES = {
    "0.4G": Shape(width=2048, n_layers=6, n_heads=64, n_feed_forward=8192),
    "0.8G": Shape(width=2048, n_layers=12, n_heads=64, n_feed_forward=8192),
    "1.1G": Shape(width=2048, n_layers=18, n_heads=64, n_feed_forward=8192),
}
"""Shapes by number of parameters."""
_DEMO = "0.4G:f16"
SHIPPED = "shipped"
_SHIPPED_SHAPE = Shape(width=256, n_layers=6, n_heads=8, n_feed_forward=768)
_SMOLLM2_SHAPE = Shape(width=1024, n_layers=30, n_heads=15, n_feed_forward=2816)
"""A shape of 0.78 GB in f16, as large as the demo's target, with the layers of SmolLM2-135M."""

_DRAFT_LAYERS, _DRAFT_WIDTH_STEP = 4, 64
_DRAFT_TYPE: Quantization = "q8_0"
_VOCABULARY = 4096
_HEAD_WIDTH = 32
_FIT_TRIES = 4
_FIT_TOLERANCE = 0.1
_REPEATS = 15
"""The number of steps from which T(1) is measured."""


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A draft model and the cost of its step relative to the target's."""

    path: Path
    ratio: float


def target(name: str) -> Path:
    """Return the target called `size:quantization`, such as 0.4G:f16, or the GGUF file at this path.

    Raises ConfigError.
    """
    if (path := Path(name)).is_file():
        return path
    size, _, quantization = name.partition(":")
    if size not in TARGET_SHAPES or quantization not in get_args(Quantization):
        sizes, types = ", ".join(TARGET_SHAPES), ", ".join(get_args(Quantization))
        raise ConfigError(
            f"target {name!r}: write a file name or size:type, with a size of {sizes} and a type of {types}"
        )
    if name == _DEMO:
        return grown_target()
    return _grown(builtin_target(), TARGET_SHAPES[size], quantization)  # type: ignore[arg-type]


def shipped_target(weights: Quantization) -> Path:
    """Return the shipped target with its weights in the given type; q8_0 is the type they are shipped in."""
    return _grown(builtin_target(), _SHIPPED_SHAPE, weights)


def useless_draft() -> Path:
    """Return the shipped draft model with negated logits: as fast and as confident, and always wrong."""
    path = _cache() / f"bench-useless-{builtin_draft().name}"
    if not path.is_file():
        copy = path.with_suffix(".part")
        shutil.copy(builtin_draft(), copy)
        (norm,) = [each for each in GGUFReader(copy, "r+").tensors if each.name == "output_norm.weight"]
        np.negative(norm.data, out=norm.data)
        copy.replace(path)
    return path


def draft(cost: str, of_target: Path, lead_cpus: str, back_cpus: str) -> DraftModel:
    """Return the draft model whose step costs `cost` times the target's; "shipped" or a file: that model.

    The target's step is measured with one thread on the lead's cores, the draft model's on the back's cores.
    Results are cached. Raises ConfigError.
    """
    known = _read_known()
    key = f"{of_target.name} {cost} {lead_cpus} {back_cpus}"
    if (found := known.get(key)) and Path(found["path"]).is_file():
        return DraftModel(Path(found["path"]), found["ratio"])
    first = _step_seconds(of_target, lead_cpus)
    given = builtin_draft() if cost == SHIPPED else Path(cost)
    if given.is_file():
        result = DraftModel(given, _ratio(given, back_cpus, first))
    else:
        result = _fit(float(cost), of_target, back_cpus, first)
    known[key] = {"path": str(result.path), "ratio": result.ratio}
    _known_path().write_text(json.dumps(known, indent=1), encoding="utf-8")
    return result


def draft_shape(n_parameters: float) -> Shape:
    """Return the smallest draft shape with at least `n_parameters` parameters."""
    width = 2 * _DRAFT_WIDTH_STEP
    while n_draft_parameters(_draft_shape(width)) < n_parameters:
        width += _DRAFT_WIDTH_STEP
    return _draft_shape(width)


def n_draft_parameters(shape: Shape) -> int:
    """Return the number of parameters of the matrices.

    The model has half as many key/value heads as query heads, and tied embeddings.
    """
    heads = shape.n_heads * _HEAD_WIDTH
    attention = 3 * shape.width * heads  # q and output whole, k and v half each
    feed_forward = 3 * shape.width * shape.n_feed_forward
    return shape.n_layers * (attention + feed_forward) + _VOCABULARY * shape.width


def _draft_shape(width: int) -> Shape:
    return Shape(width, _DRAFT_LAYERS, width // _HEAD_WIDTH, 4 * width)


def _fit(cost: float, of_target: Path, back_cpus: str, first: float) -> DraftModel:
    """Grow, measure, correct: time is nearly proportional to size, so a few attempts are enough."""
    wanted = cost * of_target.stat().st_size
    tried: dict[Shape, DraftModel] = {}
    for _ in range(_FIT_TRIES):
        shape = draft_shape(wanted)
        if shape in tried:
            break
        path = _grown(builtin_draft(), shape, _DRAFT_TYPE)
        tried[shape] = DraftModel(path, _ratio(path, back_cpus, first))
        wanted *= cost / tried[shape].ratio
        if abs(tried[shape].ratio / cost - 1) < _FIT_TOLERANCE:
            break
    best = min(tried.values(), key=lambda model: abs(math.log(model.ratio / cost)))
    in_use = {found["path"] for found in _read_known().values()}
    for model in tried.values():
        if model != best and str(model.path) not in in_use:
            model.path.unlink(missing_ok=True)
    return best


def _ratio(path: Path, back_cpus: str, first: float) -> float:
    return _step_seconds(path, back_cpus) / first


def _step_seconds(path: Path, cores: str) -> float:
    """Return T(1) in seconds, measured in a separate process on `cores`; raises ConfigError."""
    pinned = parse_cpus(cores)
    options = ModelOptions(ctx_size=512, parallel=1, batch_size=256, threads=len(pinned))
    with pinned_process(pinned) as process:
        return process.submit(measure_steps, path, options, [1], _REPEATS, math.inf).result()[1]


def grown_smollm2(progress: Progress | None = None) -> Path:
    """Return a model with SmolLM2-135M's answers at the cost of 0.4B parameters; see `grown_target`."""
    return _grown(named_model(Path("smollm2")), _SMOLLM2_SHAPE, "f16", progress)


def _grown(source: Path, shape: Shape, quantization: Quantization, progress: Progress | None = None) -> Path:
    recipe = f"{VERSION} {shape} {quantization}".encode() + source.read_bytes()
    kind = source.name.partition("-")[0]
    path = _cache() / f"bench-{kind}-{quantization}-{hashlib.sha256(recipe).hexdigest()[:16]}.gguf"
    if not path.is_file():
        grow(source, path, shape, quantization, progress)
    return path


def _cache() -> Path:
    folder = user_cache_path("llama-duo")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the cache folder {folder}: {error}") from error
    return folder


def _known_path() -> Path:
    return _cache() / "bench-drafts.json"


def _read_known() -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads(_known_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known
