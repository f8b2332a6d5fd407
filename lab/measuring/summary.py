"""Summarizes runs: a row per way of answering, compared with the baseline of the same repeat."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lab.measuring.contest import Run
from lab.measuring.measured_answer import MeasuredAnswer

BASELINE = "no back"
_NOISE = 1.15
"""A larger part of a speed-up that drafts do not explain shows that a measurement was disturbed."""


@dataclass(frozen=True, slots=True)
class Row:
    """The results of a way of answering in a configuration. Ratios are None without drafts or comparison."""

    configuration: str
    way: str
    tokens_per_second: float
    low: float
    high: float
    speedup: float | None
    """The median over repeats of the ratio to the baseline."""
    accepted_share: float | None
    accepted_per_step: float | None
    mean_depth: float | None
    wait_share: float | None
    first_ms: float | None
    """The median time from a request to its first text."""
    n_same_text: int
    n_texts: int
    by_kind: dict[str, float]
    """Tokens per second of each kind of question."""

    @property
    def explained(self) -> float:
        """The highest speed-up that drafts can give: as if a step took no longer with draft tokens."""
        return 1 + (self.accepted_per_step or 0.0)

    @property
    def is_disturbed(self) -> bool:
        """True if drafts cannot explain the speed-up: something else slowed the baseline down."""
        return self.speedup is not None and self.speedup > _NOISE * self.explained


def summarize(
    configuration: str, runs: Sequence[Run], ways: Sequence[str] = (), *, baseline: str = BASELINE
) -> list[Row]:
    """Return a row for each way of answering: first `ways` in order, then others in the order of their first
    run.
    """
    names = {run.way for run in runs}
    ordered = [name for name in dict.fromkeys([*ways, *(run.way for run in runs)]) if name in names]
    return [_row(configuration, way, runs, baseline) for way in ordered]


def tokens_per_second(measurements: Iterable[MeasuredAnswer]) -> float:
    """Return the tokens/s of answers without their first steps; 0 without measurements."""
    taken = list(measurements)
    seconds = sum(measurement.seconds for measurement in taken)
    return sum(measurement.n_timed for measurement in taken) / seconds if seconds > 0 else 0.0


def by_repeat(runs: Sequence[Run], way: str) -> dict[int, float]:
    """Return tokens per second of one way of answering in each repeat."""
    repeats = sorted({run.repeat for run in runs if run.way == way})
    return {
        repeat: tokens_per_second(run.measurement for run in runs if (run.way, run.repeat) == (way, repeat))
        for repeat in repeats
    }


def _row(configuration: str, way: str, runs: Sequence[Run], baseline: str) -> Row:
    mine = [run for run in runs if run.way == way]
    speeds, base = by_repeat(runs, way), by_repeat(runs, baseline)
    ratios = [speeds[repeat] / base[repeat] for repeat in speeds if base.get(repeat)]
    speedup = statistics.median(ratios) if ratios else None
    n_steps = max(1, sum(run.measurement.n_steps for run in mine))
    n_drafted = sum(run.measurement.n_drafted for run in mine)
    n_accepted = sum(run.measurement.n_accepted for run in mine)
    firsts = [seconds for run in mine if (seconds := run.measurement.first_seconds) is not None]
    n_same, n_texts = _same_texts(mine, runs, baseline)
    return Row(
        configuration=configuration,
        way=way,
        tokens_per_second=statistics.median(speeds.values()),
        low=min(speeds.values()),
        high=max(speeds.values()),
        speedup=speedup,
        accepted_share=n_accepted / n_drafted if n_drafted else None,
        accepted_per_step=n_accepted / n_steps if n_drafted else None,
        mean_depth=n_drafted / n_steps if n_drafted else None,
        wait_share=_wait_share(mine),
        first_ms=1000 * statistics.median(firsts) if firsts else None,
        n_same_text=n_same,
        n_texts=n_texts,
        by_kind={
            kind: tokens_per_second(run.measurement for run in mine if run.question.kind == kind)
            for kind in dict.fromkeys(run.question.kind for run in mine)
        },
    )


def _same_texts(mine: Sequence[Run], runs: Sequence[Run], baseline: str) -> tuple[int, int]:
    expected = {(run.repeat, run.question): run.measurement.text for run in runs if run.way == baseline}
    pairs = [(run.measurement.text, expected.get((run.repeat, run.question))) for run in mine]
    compared = [(got, wanted) for got, wanted in pairs if wanted is not None]
    return sum(got == wanted for got, wanted in compared), len(compared)


def _wait_share(mine: Sequence[Run]) -> float | None:
    waits = [run.measurement for run in mine if run.measurement.wait_seconds is not None]
    seconds = sum(measurement.seconds for measurement in waits)
    return sum(measurement.wait_seconds or 0.0 for measurement in waits) / seconds if seconds > 0 else None
