"""The findings of a soak (`lab.campaign.soak`), and which of them are failures."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from lab.campaign.asking import Tally
from lab.parts import report
from lab.parts.processes import Usage

_LEVEL_SECONDS = 1200.0
_MAX_GROWTH: Mapping[str, tuple[float, Callable[[Usage], float]]] = {
    "MB of a process": (4.0, lambda usage: usage.megabytes / usage.n_processes),
    "descriptors of a process": (4.0, lambda usage: usage.n_descriptors / usage.n_processes),
    "processes": (1.0, lambda usage: usage.n_processes),
}
"""The growth allowed besides `_GROWTH_SHARE`, because some programs have processes that come and go with
requests.
"""
_GROWTH_SHARE = 0.05
_MAX_STEP_TOKENS, _MAX_RATIO = 32, 100.0
"""The largest n of a step with drafts, and the largest plausible ratio of two T(n) up to it: about 10 if
all sizes have been timed.
"""
_MAX_LONGER = 4.0
"""The largest plausible T(n) / T(m) for m > n: 1.5 may be true, and an old T(n) may be 3 times too long."""
_SUMS = ("n_steps", "step_seconds", "n_draft_tokens", "n_accepted_tokens")
_DEATH = re.compile(
    r"Traceback| (ERROR|CRITICAL): |process ended with status|local back .*ended|will be restarted"
)
_WARNING = re.compile(r" WARNING: (.*)")
_MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory, descriptors and T(n), `seconds` after the start. step_ms: T(n) in milliseconds by n."""

    seconds: float
    usage: Mapping[str, Usage]
    step_ms: Mapping[str, float]


@dataclass(slots=True)
class Findings:
    """The findings of a run. `deaths`: time, program and exit status, as far as known."""

    tally: Tally = field(default_factory=lambda: Tally({}, exact=True))
    n_compared: int = 0
    deaths: list[str] = field(default_factory=list)
    warnings: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    """The sums (`_SUMS`) over all engines."""
    latest: dict[str, float] = field(default_factory=dict)
    """The latest values of the present engine."""
    n_tokens: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """The numbers of tokens and seconds, by kind of phase."""

    def read(self, line: str, when: str) -> None:
        """Evaluate a line of a program's log, logged at the time `when`."""
        if _DEATH.search(line):
            self.deaths.append(f"{when}: {line}")
        elif warning := _WARNING.search(line):
            self.warnings[re.sub(r"\d[\d.]*|[0-9a-f]{8,}", "#", warning[1])[:100]] += 1

    def add(self, seconds: float, usage: Mapping[str, Usage], planner: Mapping[str, Any]) -> None:
        """Add a sample. planner: the engine's report; empty while there is no engine."""
        new = dict.fromkeys(_SUMS, 0)
        for name in _SUMS if planner else ():
            before, now = self.latest.get(name, 0), planner[name]
            new[name] = now - before if planner["n_steps"] >= self.latest.get("n_steps", 0) else now
        self.latest |= {name: planner[name] for name in _SUMS if planner}
        self.totals.update(new)
        self.samples.append(Sample(seconds, usage, planner.get("step_ms", {})))

    def failures(self) -> list[str]:
        """Return a line for each failure."""
        tally = self.tally
        counts = {"changed": tally.n_changed, "lost": tally.n_lost, "unterminated": tally.n_unterminated}
        found = [f"{n} answers {name}" for name, n in counts.items() if n]
        return [*found, *self.deaths, *grown(self.samples), *nonsense(self.samples)]


def nonsense(samples: Sequence[Sample]) -> Iterator[str]:
    """Yield a message for the first implausible T(n), if any."""
    for sample in samples:
        costs = {n: each for n, each in sample.step_ms.items() if int(n) <= _MAX_STEP_TOKENS}
        minimum, maximum = (choose(costs, key=costs.__getitem__, default="") for choose in (min, max))
        if costs and not 0 < costs[maximum] < _MAX_RATIO * costs[minimum]:
            minute, of_max, of_min = sample.seconds / 60, costs[maximum], costs[minimum]
            yield f"minute {minute:.1f}: T({maximum}) is {of_max:.4g} ms, T({minimum}) {of_min:.4g}"
            return
        for n, wider in combinations(sorted(costs, key=int), 2):
            if costs[n] > _MAX_LONGER * costs[wider]:
                minute = sample.seconds / 60
                yield f"minute {minute:.1f}: T({n}) is {costs[n]:.4g} ms, T({wider}) only {costs[wider]:.4g}"
                return


def grown(samples: Sequence[Sample]) -> Iterator[str]:
    """Yield a message for each quantity whose maximum grew between the halves of the time after minute 20."""
    late = [sample for sample in samples if sample.seconds >= _LEVEL_SECONDS]
    halves = late[: len(late) // 2], late[len(late) // 2 :]
    if not halves[0]:
        return
    for what, (minimum, value) in _MAX_GROWTH.items():
        first, second = (_max(half, value) for half in halves)
        for name in first.keys() & second.keys():
            if second[name] > first[name] * (1 + _GROWTH_SHARE) + minimum:
                yield f"{name}: {what} grew from {first[name]:.0f} to {second[name]:.0f}"


def _max(samples: Sequence[Sample], value: Callable[[Usage], float]) -> dict[str, float]:
    maximum: defaultdict[str, float] = defaultdict(float)
    for sample in samples:
        for name, usage in sample.usage.items():
            maximum[name] = max(maximum[name], value(usage))
    return maximum


def rows(findings: Findings) -> list[dict[str, str]]:
    tally, totals = findings.tally, findings.totals
    values: dict[str, Any] = {
        "requests": tally.n_requests,
        "of these compared": findings.n_compared,
        "changed, lost, unterminated": f"{tally.n_changed}, {tally.n_lost}, {tally.n_unterminated}",
        "clients that left": tally.n_left,
        "deaths": len(findings.deaths),
        "steps": totals["n_steps"],
        "their mean, ms": f"{1000 * totals['step_seconds'] / max(1, totals['n_steps']):.2f}",
        "draft tokens accepted, verified": f"{totals['n_accepted_tokens']}, {totals['n_draft_tokens']}",
    }
    for kind, seconds in findings.seconds.items():
        values[f"tokens/s, {kind}"] = f"{findings.n_tokens[kind] / seconds:.1f}"
    values |= {f"errors that clients saw: {name}": n for name, n in tally.errors.items()}
    values |= {f"warned: {text}": n for text, n in findings.warnings.most_common(_MAX_SHOWN)}
    if findings.samples:
        steps = findings.samples[-1].step_ms.items()
        values["step_ms at the end"] = ", ".join(f"{n}: {milliseconds:g}" for n, milliseconds in steps)
    return [{"what": name, "value": str(value)} for name, value in values.items()]


def show_times(samples: Sequence[Sample]) -> None:
    """Print memory, descriptors, processes and T(1) over time, in about ten lines."""
    chosen = samples[:: max(1, len(samples) // 10)]
    names = list(dict.fromkeys(name for sample in chosen for name in sample.usage))
    rows = [
        {"minute": sample.seconds / 60, "T(1)": sample.step_ms.get("1")}
        | {name: str(usage) for name, usage in sample.usage.items()}
        for sample in chosen
    ]
    columns = {"minute": ("minute", ".1f"), "T(1)": ("T(1), ms", ".4g")}
    report.show("MB, descriptors, processes", rows, columns | {name: (name, "") for name in names})
