"""`--check`: what a program would run, and whether this machine can. Starts and downloads nothing."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import psutil

from shared import cpus
from shared.diagnostics.findings import count
from shared.errors import ConfigError
from shared.llama import library
from shared.llama.model import choose_n_ctx
from shared.llama.vocabulary import ModelInfo, Vocabulary
from shared.models.convert import Conversion
from shared.models.split import parts_of
from shared.settings.model_options import CacheType, ComputeOptions, ModelOptions
from shared.settings.model_source import ModelSource
from shared.terminal import one_line


@dataclass(slots=True)
class PreflightReport:
    """Lines of (topic, text), and problems."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, topic: str, text: str) -> None:
        self.lines.append((topic, text))

    def add_problem(self, problem: str) -> None:
        self.problems.append(problem)

    @property
    def status(self) -> int:
        """The exit status: 1 if there is a problem."""
        return int(bool(self.problems))

    def __str__(self) -> str:
        """Lines and problems, which may quote a file: each is shown as one line."""
        width = max((len(topic) for topic, _ in self.lines), default=0)
        lines = [f"{topic:<{width}}  {one_line(text)}" for topic, text in self.lines]
        result = [f"PROBLEM: {one_line(problem)}" for problem in self.problems] or [
            "This machine can run it."
        ]
        return "\n".join([*lines, "", *result])


def read_model(report: PreflightReport, source: ModelSource) -> Vocabulary | None:
    """The vocabulary of a model, also from the hub's cache; None without a model, or with a problem added."""
    try:
        found = locate(source)
    except ConfigError as error:
        report.add_problem(str(error))
        return None
    if found is None:
        return None
    report.add("model", found.text)
    report.add("", describe(found.vocabulary.info))
    return found.vocabulary


@dataclass(frozen=True, slots=True)
class LocatedModel:
    """A model that can be loaded, and a text that says where it is."""

    text: str
    vocabulary: Vocabulary


def locate(source: ModelSource) -> LocatedModel | None:
    """The vocabulary of a model, which is neither converted nor downloaded; raises ConfigError."""
    source = source.cached_only()
    if conversion := source.pending_conversion():
        text = f"{conversion.path}, {conversion.kind}, converted to GGUF at the first start"
        return LocatedModel(text, _preview(conversion))
    path = source.located().model
    if path is None:
        return None
    n_more = len(parts_of(path)) - 1
    return LocatedModel(f"{path}{f' and {n_more} more' if n_more else ''}", Vocabulary.load(path))


def _preview(conversion: Conversion) -> Vocabulary:
    """The vocabulary that the converted model will have."""
    with tempfile.TemporaryDirectory(prefix="llama-duo-") as folder:
        path = Path(folder) / f"{conversion.name}.gguf"
        conversion.file().write_outline(path)
        return Vocabulary.load(path)


def describe(info: ModelInfo) -> str:
    """Name, size and quantization."""
    names = {int(kind): kind.name.removeprefix("MOSTLY_") for kind in gguf.LlamaFileType}
    stored = names.get(-1 if info.file_type is None else info.file_type, "of an unknown type")
    n_params = f"{info.n_params / 1e9:.1f}B" if info.n_params >= 1e9 else f"{info.n_params / 1e6:.1f}M"  # noqa: PLR2004
    return f"{info.name}, {n_params} parameters, {gigabytes(info.size)}, mostly {stored}"


def check_memory(report: PreflightReport, info: ModelInfo, options: ModelOptions) -> None:
    """Compare weights and KV cache with the free memory; only llama.cpp knows what fits on a GPU."""
    n_ctx = choose_n_ctx(options, info.n_ctx_train)
    n_cache = cache_bytes(info, n_ctx, options)
    types = f"{options.cache_type_k}/{options.cache_type_v}"
    report.add(
        "context",
        f"{n_ctx} tokens for {options.parallel} slots, KV cache {types}: about {gigabytes(n_cache)}",
    )
    if options.n_gpu_layers != 0 and library.supports_gpu():
        layers = "all layers" if options.n_gpu_layers < 0 else f"{options.n_gpu_layers} layers"
        report.add("memory", f"{layers} in VRAM, which is not checked")
        return
    n_free = psutil.virtual_memory().available
    n_needed = info.size + n_cache
    report.add("memory", f"about {gigabytes(n_needed)} needed and {gigabytes(n_free)} free, on the CPU")
    if n_needed > n_free:
        report.add_problem(
            f"weights and KV cache need about {gigabytes(n_needed)} of memory, but only {gigabytes(n_free)} "
            "are free: use a smaller model or --ctx-size, or --cache-type-k q8_0"
        )


def check_cores(report: PreflightReport, chosen: str | None, count_threads: Callable[[], int]) -> None:
    """Pins this process as the program would, because the number of threads depends on it."""
    try:
        if chosen:
            cpus.pin(cpus.parse_cpus(chosen))
    except ConfigError as error:
        report.add_problem(str(error))
        return
    n_threads, n_cores = count_threads(), len(cpus.usable())
    report.add(
        "computing",
        f"{count(n_threads, 'thread')} on {f'cores {chosen}' if chosen else count(n_cores, 'core')}",
    )
    if n_threads > n_cores:
        report.add_problem(
            f"{n_threads} threads on {n_cores} cores slow each other down: use fewer --threads"
        )


def cache_bytes(info: ModelInfo, n_ctx: int, options: ComputeOptions) -> int:
    """The size of the KV cache; 0 if the file's metadata are not sufficient to compute it."""
    n_keys, n_values = info.n_kv
    per_token = n_keys * _number_bytes(options.cache_type_k) + n_values * _number_bytes(options.cache_type_v)
    return int(n_ctx * per_token)


def gigabytes(n_bytes: int) -> str:
    """Format a size, in GB or MB."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"  # noqa: PLR2004 - one GB


def _number_bytes(cache_type: CacheType) -> float:
    sizes: dict[Any, tuple[int, int]] = gguf.GGML_QUANT_SIZES
    n_numbers, n_bytes = sizes[gguf.GGMLQuantizationType[cache_type.upper()]]
    return n_bytes / n_numbers
