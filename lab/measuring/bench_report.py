"""The output of `lead bench`: a table and sentences, one JSON object, or a plot."""

import importlib.util
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lab.measuring.bench_settings import BenchSettings
from lab.measuring.summary import Row
from lab.planning.measurements import busy_cores, busy_warnings, wider_steps
from lead import text_table
from shared import cpus
from shared.diagnostics.findings import count
from shared.errors import ConfigError

_PACKAGES = ("llama-duo", "llama-cpp-python", "numpy", "fastapi", "uvicorn", "websockets")
_CPUINFO = Path("/proc/cpuinfo")
_COLUMNS = {
    "way": ("", ""),
    "tokens_per_second": ("tokens/s", ".1f"),
    "speedup": ("speed-up", ".2f"),
    "accepted_share": ("accepted", ".0%"),
    "accepted_per_step": ("accepted tokens per step", ".2f"),
    "first_ms": ("first, ms", ".0f"),
    "same_text": ("same text", ""),
}
_DISTURBED = "The measurement was disturbed, so nothing is recommended. End other programs and measure again."
_DIFFERENT = (
    "Different texts are equally good samples, because the last bits of a step depend on its "
    "size. With --exact the texts are identical."
)


@dataclass(slots=True)
class BenchReport:
    """Results, filled while the arrangements answer.

    `step_ms`: T(n) in milliseconds without a draft model, if known. `commands`: the command that starts each
    arrangement. `failures`: a sentence for each arrangement that could not answer. `busy`: `busy_cores`
    before the first request.
    """

    settings: BenchSettings
    title: str = ""
    rows: Sequence[Row] = ()
    step_ms: Mapping[int, float] = field(default_factory=dict)
    commands: dict[str, list[str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    busy: float = field(default_factory=busy_cores)

    def __str__(self) -> str:
        """Return paragraphs: the request, the tables, T(n), the fastest way and its command."""
        shown = [asdict(row) | {"same_text": f"{row.n_same_text} of {row.n_texts}"} for row in self.rows]
        parts = [self._asked(), text_table.text(self.title, shown, _COLUMNS)]
        if len(kinds := dict.fromkeys(kind for row in self.rows for kind in row.by_kind)) > 1:
            columns = {"way": ("tokens/s", ""), **{kind: (kind, ".1f") for kind in kinds}}
            parts.append(text_table.text("", [{"way": row.way, **row.by_kind} for row in self.rows], columns))
        if 1 in self.step_ms:
            one = f"A step of one token takes {self.step_ms[1]:.3g} ms"
            parts.append(f"{', '.join([one, *wider_steps(self.step_ms, (2, 4, 8))])}.")
        parts += [f"Not measured: {failure}" for failure in self.failures]
        return "\n\n".join([*parts, *self._remarks(), self._verdict()])

    def to_json(self) -> str:
        settings = self.settings
        result = {
            "title": self.title,
            "prompts": list(settings.prompts),
            "n_prompts": settings.n_prompts,
            "repeats": settings.repeats,
            "n_predict": settings.sampling.n_predict,
            "temperature": settings.sampling.with_seed(0).temperature,
            "environment": environment(),
            "step_ms": dict(self.step_ms),
            "rows": list(map(asdict, self.rows)),
            "failures": list(self.failures),
            "remarks": self._remarks(),
            "commands": {way: list(lines) for way, lines in self.commands.items()},
        }
        return json.dumps(rounded(result))

    def _asked(self) -> str:
        sampling = self.settings.sampling
        return (
            f"{count(self.rows[0].n_texts, 'answer')} of up to {sampling.n_predict} tokens to "
            f"{', '.join(self.settings.prompts)}, temperature {sampling.with_seed(0).temperature:g}"
        )

    def _remarks(self) -> list[str]:
        """Return reasons to doubt the figures."""
        said = (
            "{0.way}: the accepted tokens allow a speed-up of at most {0.explained:.2f}, not {0.speedup:.2f}."
        )
        return busy_warnings(self.busy) + [said.format(row) for row in self.rows if row.is_disturbed]

    def _verdict(self) -> str:
        fastest = max(self.rows, key=lambda row: row.tokens_per_second)
        doubt = ", if these figures hold" if self._remarks() else ""
        said = [f"Fastest{doubt}: {fastest.way}, {fastest.tokens_per_second:.1f} tokens/s."]
        if any(row.is_disturbed for row in self.rows):
            said = [_DISTURBED]
        elif lines := self.commands.get(fastest.way):
            said += ["Run", "", *(f"  {line}" for line in lines)]
        if any(row.n_same_text < row.n_texts for row in self.rows):
            said += ["", _DIFFERENT]
        return "\n".join(said)


def check_plot(path: Path) -> None:
    """Raise ConfigError if no plot can be written to `path`."""
    if not path.parent.is_dir():
        raise ConfigError(f"--plot: the folder {path.parent} does not exist")
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--plot needs matplotlib. Install it: pip install 'llama-duo[bench]'")


def draw_plot(report: BenchReport, path: Path) -> None:
    """Plot bars of tokens/s by way of answering, with the range of the repeats. Raises ConfigError."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an optional package

    rows = list(reversed(report.rows))
    figure = Figure(figsize=(8, 1 + 0.4 * len(rows)), layout="constrained")
    axes = figure.subplots()
    speeds = [row.tokens_per_second for row in rows]
    spread = [
        [row.tokens_per_second - row.low for row in rows],
        [row.high - row.tokens_per_second for row in rows],
    ]
    bars = axes.barh([row.way for row in rows], speeds, xerr=spread)
    axes.bar_label(bars, fmt="%.1f", padding=4)
    axes.margins(x=0.12)
    axes.set_xlabel("tokens/s")
    axes.set_title(report.title, loc="left")
    try:
        figure.savefig(path)
    except OSError as error:
        raise ConfigError(f"--plot: cannot write {path}: {error.strerror}") from error


def rounded(value: Any) -> Any:
    """Return `value` with every float inside rounded to four significant digits; further digits are noise."""
    match value:
        case float():
            return float(f"{value:.4g}")
        case dict():
            return {key: rounded(item) for key, item in value.items()}
        case list() | tuple():
            return [rounded(item) for item in value]
    return value


def environment() -> dict[str, Any]:
    """Return the hardware and versions, to compare results with."""
    return {
        "cpu": cpu_name(),
        "n_cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": cpus.load_average(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def cpu_name() -> str:
    """Return the processor's name from Linux, on other systems from Python."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
