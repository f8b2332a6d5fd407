"""The shipped pair, simulated: where the adaptive policy stands between no drafts and a free drafter."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bench.simulation.contest import ADAPTIVE, BOUND, OFF, contest
from bench.simulation.recorded_text import KnowingText, PairRecorder, RecordedPosition, RecordedText
from bench.simulation.scenarios import F16
from lead.simulation.cell import Cell
from lead.simulation.shared_machine import Contention
from lead.simulation.simulated_back import BackSpec
from shared.models.builtin import builtin_draft, builtin_target

_TEMPERATURES = (0.0, 1.0)
_COSTS = (0.02, 0.1, 0.3)
_RTT_S = 0.0002
_CONTENTION = Contention(lead=1.2, back=2.0)
"""An assumption; `lead plan` measures it."""


def compare(n_tokens: int, n_jobs: int = 0, *, quick: bool = False) -> list[dict[str, Any]]:
    """A row for each temperature and cost of the draft model."""
    recorder = PairRecorder(builtin_target(), builtin_draft())
    rows: list[dict[str, Any]] = []
    for temperature in _TEMPERATURES:
        recorded = recorder.record(temperature, n_each=2 if quick else 5, n_tokens=100)
        right = [position.right[0] for text in recorded for position in text]
        rows += [
            {
                "temperature": temperature,
                "acceptance": round(sum(right) / len(right), 3),
                "cost": cost,
                **_compare(recorded, cost, n_tokens, n_jobs),
            }
            for cost in (_COSTS[1:2] if quick else _COSTS)
        ]
    return rows


def _compare(
    recorded: Sequence[Sequence[RecordedPosition]], cost: float, n_tokens: int, n_jobs: int
) -> dict[str, float]:
    texts, knowing = tuple(map(RecordedText, recorded)), tuple(map(KnowingText, recorded))
    cell = Cell(F16, (BackSpec(cost * F16.first, _RTT_S),), n_tokens=n_tokens, texts=texts)
    variants = (replace(cell, texts=knowing), replace(cell, contention=_CONTENTION))
    (result,) = contest([cell], (OFF, ADAPTIVE, *BOUND), n_jobs)
    known, shared = (each.speedup(ADAPTIVE) for each in contest(variants, (OFF, ADAPTIVE), n_jobs))
    fixed, free, adaptive = result.speedup(*BOUND[1:]), result.speedup(BOUND[0]), result.speedup(ADAPTIVE)
    return {
        "free_fixed": round(fixed, 3),
        "free_adaptive": round(free, 3),
        "adaptive": round(adaptive, 3),
        "of_fixed": round(adaptive / fixed, 3),
        "of_adaptive": round(adaptive / free, 3),
        "if_knowing": round(known / adaptive, 3),
        "one_machine": round(shared / fixed, 3),
    }
