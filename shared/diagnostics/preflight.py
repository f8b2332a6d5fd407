"""`--check`: reports what a program would run, and whether this machine can run it.

Starts nothing and downloads nothing.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import gguf

from shared import cpus
from shared.diagnostics.findings import count
from shared.errors import ConfigError, ModelLoadError
from shared.free_memory import free_memory
from shared.llama import devices, library
from shared.llama.memory_plan import MemoryPlan
from shared.llama.model_info import ModelInfo
from shared.llama.placement import CPU, Placement
from shared.llama.vocabulary import Vocabulary
from shared.model_files.file_kind import parts_of
from shared.settings.model_source import ModelSource
from shared.terminal import one_line, size_text


@dataclass(slots=True)
class PreflightReport:
    """The report: lines of (topic, text), and problems."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, topic: str, text: str) -> None:
        self.lines.append((topic, text))

    @property
    def status(self) -> int:
        return int(bool(self.problems))

    def __str__(self) -> str:
        """Return lines and problems. They may quote a file, so each is shown as one line."""
        width = max((len(topic) for topic, _ in self.lines), default=0)
        lines = [f"{topic:<{width}}  {one_line(text)}" for topic, text in self.lines]
        result = [f"PROBLEM: {one_line(problem)}" for problem in self.problems] or [
            "This machine can run it."
        ]
        return "\n".join([*lines, "", *result])


@contextmanager
def read_model(report: PreflightReport, source: ModelSource) -> Iterator[Vocabulary | None]:
    """Yield the vocabulary of a model, which may be in the hub's cache; None without a model, or after adding
    a problem.

    The model's file, `info.path`, exists until the context ends.
    """
    with ExitStack() as stack:
        try:
            found = stack.enter_context(locate(source))
        except ConfigError as error:
            report.problems.append(str(error))
            found = None
        if found:
            report.add("model", found.text)
            report.add("", describe(found.vocabulary.info))
        yield found.vocabulary if found else None


@dataclass(frozen=True, slots=True)
class LocatedModel:
    """A model that can be loaded, and a text that says where it is."""

    text: str
    vocabulary: Vocabulary


@contextmanager
def locate(source: ModelSource) -> Iterator[LocatedModel | None]:
    """Yield a model with its vocabulary, without converting or downloading it; None if no model is named.

    Raises ConfigError. For a model that would be converted, a temporary file with zeros as weights is
    written, which exists until the context ends.
    """
    source = source.model_copy(update={"offline": True})
    if conversion := source.pending_conversion():
        with tempfile.TemporaryDirectory(prefix="llama-duo-") as folder:
            path = Path(folder) / f"{conversion.name}.gguf"
            conversion.file().write_outline(path)
            text = f"{conversion.path}, {conversion.kind}, converted to GGUF at the first start"
            yield LocatedModel(text, Vocabulary.load(path))
        return
    model = source.located().model
    if model is None:
        yield None
        return
    n_more = len(parts_of(model)) - 1
    yield LocatedModel(f"{model}{f' and {n_more} more' if n_more else ''}", Vocabulary.load(model))


def describe(info: ModelInfo) -> str:
    """Return the model's name, size and quantization as text."""
    n_params = f"{info.n_params / 1e9:.1f}B" if info.n_params >= 1e9 else f"{info.n_params / 1e6:.1f}M"  # noqa: PLR2004
    return f"{info.name}, {n_params} parameters, {size_text(info.size)}, mostly {quantization(info)}"


def quantization(info: ModelInfo) -> str:
    """Return the type of most weights, such as Q4_K_M."""
    names = {int(kind): kind.name.removeprefix("MOSTLY_") for kind in gguf.LlamaFileType}
    return names.get(-1 if info.file_type is None else info.file_type, "of an unknown type")


def check_memory(
    report: PreflightReport,
    make_plan: Callable[[], MemoryPlan],
    taken: Mapping[str, int],
    who_takes: str = "draft model",
) -> MemoryPlan | None:
    """Report where a model would be placed, and add a problem if the free memory does not suffice.

    taken: bytes that other models will use, by place; who_takes: the name of these models. The memory of RPC
    workers is unknown. Returns None, and adds a problem, if the model cannot be loaded.
    """
    try:
        plan = make_plan()
    except ModelLoadError as error:
        report.problems.append(str(error))
        return None
    options = plan.options
    types = f"{options.cache_type_k}/{options.cache_type_v}"
    report.add(
        "context",
        f"{plan.parameters.n_ctx} tokens for {count(options.parallel, 'slot')}, KV cache {types}: "
        f"{plan.size}",
    )
    if plan.placement is None:  # llama.cpp places layers: nothing to compare
        where = "on RPC workers" if plan.with_workers else "in VRAM"
        report.add("memory", f"{layers_text(options.n_gpu_layers)} {where} (their memory is not checked)")
        return plan
    _add_placement(report, plan.placement, taken, who_takes)
    if plan.placement.problem:
        report.problems.append(plan.placement.problem)
        return plan
    # Others that will be loaded take their part of the same host memory.
    n_free = free_memory() - sum(taken.get(place, 0) for place in _host_places(plan.placement))
    n_needed = plan.placement.host_bytes
    if n_needed > n_free:
        report.problems.append(
            f"weights and KV cache need about {size_text(n_needed)} of memory, but only "
            f"{size_text(n_free)} are free. Weights would be read from the disk for each token. "
            "Use a smaller model or --ctx-size"
        )
    return plan


def layers_text(n_gpu_layers: int) -> str:
    """Return a phrase for a value of --n-gpu-layers."""
    return "all layers" if n_gpu_layers < 0 else count(n_gpu_layers, "layer")


def list_devices() -> str:
    """Return the list of devices, formatted as in llama-server."""
    try:
        found = devices.all_devices()
    except ModelLoadError as error:
        return str(error)
    lines = [
        f"  {device.name}: {device.description} ({device.total >> 20} MiB, {device.free >> 20} MiB free)"
        for device in found
    ]
    return "\n".join(["Available devices:", *(lines or ["  (none)"])])


def _add_placement(
    report: PreflightReport, placement: Placement, taken: Mapping[str, int], who_takes: str
) -> None:
    """Add a table of the sizes in each place, and of the memory that stays free there."""
    report.add("devices", str(placement))
    for group in dict.fromkeys(group for group, _ in placement.parts):
        _add_sizes(report, group, {place: n for (each, place), n in placement.parts.items() if each == group})
    if any(taken.values()):
        _add_sizes(report, who_takes, taken)
    for device in placement.devices:
        n_taken = taken.get(device.name, 0)
        _add_free(report, device.name, device.free + n_taken, n_taken + placement.used(device.name))
    n_taken = sum(taken.get(place, 0) for place in _host_places(placement))
    _add_free(report, CPU, free_memory(), n_taken + placement.host_bytes)


def _add_sizes(report: PreflightReport, topic: str, sizes: Mapping[str, int]) -> None:
    parts = (f"{_mebibytes(n_bytes)} on {place}" for place, n_bytes in sizes.items() if n_bytes)
    report.add(f"  {topic}", ", ".join(parts) or "none")


def _add_free(report: PreflightReport, place: str, n_free: int, n_used: int) -> None:
    left = f"{_mebibytes(n_free - n_used)} after loading" if n_used <= n_free else "which is not enough"
    report.add(f"  {place}", f"{_mebibytes(n_free)} free, {left}")


def _mebibytes(n_bytes: int) -> str:
    """Return a size as in llama.cpp's log."""
    return f"{n_bytes / (1 << 20):.1f} MiB"


def _host_places(placement: Placement) -> list[str]:
    return [CPU, *(device.name for device in placement.devices if device.is_shared)]


def check_cores(
    report: PreflightReport, chosen: str | None, count_threads: Callable[[], int], n_tried: int = 0
) -> None:
    """Report threads, cores and llama.cpp's CPU kernel; more threads than cores are a problem.

    chosen: the option --cpus, such as 0-3. This process is pinned to these cores as the program would be,
    because the result of `count_threads` depends on it. n_tried: a larger number of threads that the program
    uses if it is faster; 0: none.
    """
    try:
        if chosen:
            cpus.pin(cpus.parse_cpus(chosen))
        kernel = library.describe_kernel()
    except ConfigError as error:
        report.problems.append(str(error))
        return
    n_threads, n_cores = count_threads(), len(cpus.usable())
    threads = f"{count(n_threads, 'thread')} on {f'cores {chosen}' if chosen else count(n_cores, 'core')}"
    if n_tried > n_threads:
        threads += f", or {n_tried} threads if they are faster and no back runs on this machine"
    report.add("computing", threads)
    report.add("CPU kernel", kernel)
    if n_threads > n_cores:
        report.problems.append(
            f"{n_threads} threads on {n_cores} cores slow each other down. Lower --threads"
        )
