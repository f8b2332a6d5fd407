"""The tables of a campaign, and the command that repeats a failed request."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lab.campaign.asking import Failure, Tally
from lab.campaign.campaign import Result
from lab.campaign.injector import Happened
from lab.parts import report

_MAX_FAILURES = 20

Row = dict[str, Any]


def outcome_row(name: str, result: Result) -> Row:
    """Return the figures of one run."""
    tally = result.tally
    return {
        "run": name,
        "requests": tally.n_requests,
        "tokens": tally.n_tokens,
        "seconds": result.seconds,
        "faults": len(result.happened),
        "left": tally.n_left,
        "changed": tally.n_changed,
        "lost": tally.n_lost,
        "unterminated": tally.n_unterminated,
        "longest_pause": tally.longest_pause,
        "longest_answer": tally.longest_answer,
        "left_running": result.n_left_running,
        "failures": len(result.failures),
    }


def holds(result: Result) -> bool:
    """Return whether the run passed: no answer was changed, lost or left without an end, no slot is busy, and
    nothing else failed.
    """
    return not (result.tally.failures or result.failures or result.n_left_running)


def show(runs: Mapping[str, Result]) -> None:
    """Print a row for each run, then tables of the last run: its requests, faults, errors and memory."""
    report.show("Answers", [outcome_row(name, result) for name, result in runs.items()], _OUTCOMES)
    last = list(runs.values())[-1]
    _show_counts("Requests by kind", last.tally.kinds)
    _show_counts("Faults", Counter(happened.fault.kind for happened in last.happened))
    _show_counts("Hostility", last.n_hostile)
    _show_counts("Errors that clients saw", last.tally.errors)
    memory = [
        {"process": name, "start": last.memory.start.get(name), "end": size}
        for name, size in last.memory.end.items()
    ]
    report.show("Memory, in MB", memory, _MEMORY)


def failure_lines(tally: Tally, happened: Sequence[Happened], command: str) -> list[str]:
    """Return, for each failure, the request, error, active faults, and the command that repeats it."""
    lines = []
    for failure in tally.failures[:_MAX_FAILURES]:
        outcome, kinds = failure.outcome, active(failure, happened)
        request, when = outcome.request, f"{outcome.began:.1f} to {outcome.ended:.1f} s"
        errors = f"; errors: {', '.join(outcome.errors)}" if outcome.errors else ""
        lines += [
            f"request {request.index} ({request.kind}), {when}: {', '.join(failure.reasons)}{errors}",
            f"  {command} --only {request.index} --faults {','.join(kinds) or 'none'}",
        ]
    return lines


def active(failure: Failure, happened: Sequence[Happened]) -> list[str]:
    """Return the kinds of the faults that were active during the request."""
    began, ended = failure.outcome.began, failure.outcome.ended
    return sorted({each.fault.kind for each in happened if each.began <= ended and each.ended >= began})


def _show_counts(title: str, counts: Mapping[str, int]) -> None:
    rows = [{"what": name, "number": counts[name]} for name in sorted(counts)]
    report.show(title, rows, {"what": ("", ""), "number": ("number", "d")})


_OUTCOMES = {
    "run": ("run", ""),
    "requests": ("requests", "d"),
    "tokens": ("tokens", "d"),
    "seconds": ("seconds", ".0f"),
    "faults": ("faults", "d"),
    "left": ("clients left", "d"),
    "changed": ("changed", "d"),
    "lost": ("lost", "d"),
    "unterminated": ("unterminated", "d"),
    "longest_pause": ("longest pause, s", ".1f"),
    "longest_answer": ("longest answer, s", ".1f"),
    "left_running": ("slots left busy", "d"),
    "failures": ("other failures", "d"),
}
_MEMORY = {"process": ("process", ""), "start": ("start", ".1f"), "end": ("end", ".1f")}
