"""What `lead plan` says: words, a table and commands; or one JSON object."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lead.engine.commands import DRAFT_MODEL, MTP
from lead.planning.arrangements import Arrangement, SpeedForecast, best, better_elsewhere
from lead.planning.core_splits import as_ranges
from lead.planning.measurements import DrafterTimes, EngineTimes, SplitTimes
from shared.diagnostics.findings import count

_ARRANGEMENTS = {
    "none": "no draft model",
    "mtp": "the model's own heads (MTP)",
    "engine": "draft model in the engine",
}
_DRAFTERS = {DRAFT_MODEL: "draft model", MTP: "model's own head"}


@dataclass(frozen=True, slots=True)
class PlanReport:
    """`commands` are those of each forecast; `remarks` say what could not be measured or is not counted.

    texts: the prompts with which drafts were tried. acceptance: what was given in place of that.
    """

    engine: EngineTimes
    splits: Sequence[SplitTimes]
    forecasts: Sequence[SpeedForecast]
    commands: Sequence[Sequence[str]]
    remarks: Sequence[str]
    texts: Sequence[str]
    acceptance: float | None = None

    status = 0

    def __str__(self) -> str:
        """Paragraphs: what was measured, remarks, the table, what is fastest and its commands."""
        chosen, remote = best(self.forecasts), better_elsewhere(self.forecasts)
        parts = [self._measured(), *self.remarks, self._table(), f"Fastest here: {self._verdict(chosen)}"]
        if remote:
            parts.append(f"Faster still: {self._verdict(remote)}")
        return "\n\n".join(parts)

    def to_json(self) -> str:
        """In one line."""
        chosen = best(self.forecasts)
        return json.dumps(
            {
                "engine": asdict(self.engine),
                "splits": [asdict(split) for split in self.splits],
                "acceptance": self.acceptance,
                "arrangements": [
                    self._row(each, commands)
                    for each, commands in zip(self.forecasts, self.commands, strict=True)
                ],
                "fastest": describe(chosen.arrangement),
                "remarks": list(self.remarks),
                "texts": list(self.texts),
            }
        )

    def _row(self, each: SpeedForecast, commands: Sequence[str]) -> dict[str, Any]:
        return {
            "arrangement": describe(each.arrangement),
            "kind": each.arrangement.kind,
            "tokens_per_second": round(each.tokens_per_second, 2),
            "low": round(each.low, 2),
            "high": round(each.high, 2),
            "commands": list(commands),
        }

    def _measured(self) -> str:
        lines = [f"A step of one token takes {_ms(self.engine.steps[1])}{self._wider()}."]
        lines += [self._drafter(source, each) for source, each in self.engine.drafters.items()]
        lines += [_contention(split) for split in self.splits]
        return "\n".join(lines)

    def _wider(self) -> str:
        steps = self.engine.steps
        ratios = [f"{steps[n] / steps[1]:.2f} times as long with {n}" for n in (4, 8) if n in steps]
        return f", {' and '.join(ratios)}" if ratios else ""

    def _drafter(self, source: str, drafter: DrafterTimes) -> str:
        cost = drafter.token_s / self.engine.steps[1]
        begin = f"The {_DRAFTERS[source]} takes {_ms(drafter.token_s)} for a token, {cost:.3f} of that; "
        if self.acceptance is not None:
            return f"{begin}--acceptance says that {self.acceptance:.0%} of its tokens are right."
        rate = drafter.acceptance
        if rate is None:
            return f"{begin}how often it is right is not known."
        low, high = rate.interval()
        return (
            f"{begin}{rate.n_right} of {rate.n_positions} were right: {rate.value:.0%}, and with a "
            f"confidence of 95 % between {low:.0%} and {high:.0%}."
        )

    def _table(self) -> str:
        plain = self.forecasts[0].tokens_per_second
        rows: list[tuple[str, ...]] = [("arrangement", "tokens/s", "from", "to", "speed-up")]
        for each in self.forecasts:
            rates = (f"{rate:.1f}" for rate in (each.tokens_per_second, each.low, each.high))
            rows.append((describe(each.arrangement), *rates, f"{each.tokens_per_second / plain:.2f}"))
        width = max(len(row[0]) for row in rows)
        return "\n".join(
            f"{row[0]:<{width}}  {''.join(f'{cell:>10}' for cell in row[1:])}".rstrip() for row in rows
        )

    def _verdict(self, chosen: SpeedForecast) -> str:
        speedup = chosen.tokens_per_second / self.forecasts[0].tokens_per_second
        gain = f", {speedup:.2f} times as fast as without drafts" if chosen.arrangement.kind != "none" else ""
        name = describe(chosen.arrangement)
        commands = self.commands[list(self.forecasts).index(chosen)]
        begin = f"{name}, {chosen.tokens_per_second:.1f} tokens/s{gain}. Run\n"
        return "\n".join([begin, *(f"  {command}" for command in commands)])


def describe(arrangement: Arrangement) -> str:
    """In a few words."""
    if arrangement.split:
        split = arrangement.split
        where = count(len(split.back_cpus), "core")
        return f"back on {where} ({as_ranges(split.back_cpus)}), lead on {as_ranges(split.lead_cpus)}"
    if arrangement.kind == "remote":
        return f"back on another machine, {_ms(arrangement.round_trip_s)} away"
    return _ARRANGEMENTS[arrangement.kind]


def _contention(split: SplitTimes) -> str:
    where = count(len(split.back_cpus), "core")
    return (
        f"With a back on {where} ({as_ranges(split.back_cpus)}): a step {_ms(split.steps[1])}, a draft token "
        f"{_ms(split.token_s)}; while both compute {split.lead_factor:.2f} and {split.back_factor:.2f} times "
        "as long."
    )


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"
