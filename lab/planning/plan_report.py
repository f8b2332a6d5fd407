"""The output of `lead plan`: sentences, a table and commands; or one JSON object."""

import itertools
import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from lab.planning.arrangements import (
    Arrangement,
    FasterModel,
    SpeedForecast,
    best,
    best_by_place,
    better_elsewhere,
    gains_of_more,
    n_machines,
    other_models_pay,
)
from lab.planning.measurements import CoreSplit, PairTimes, SplitTimes, wider_steps
from lead.engine.commands import DRAFT_MODEL, MTP
from lead.settings.lead_settings import LeadSettings
from shared import cpus
from shared.diagnostics.findings import count
from shared.diagnostics.prospects import SECOND_BACK, Prospect, prospect
from shared.model_files.builtin import shown_path

_ARRANGEMENTS = {
    "none": "no draft model",
    "mtp": "the model's own heads (MTP)",
    "engine": "draft model in the engine",
}
_DRAFTERS = {DRAFT_MODEL: "draft model", MTP: "model's own head"}
_CHOSEN_HERE = frozenset({"threads", "hf_token", "draft_model", "hf_repo_draft", "mtp"})
_RANGE = "low, high: range of tokens/s with the measured acceptance and the ends of its confidence interval"
_ASSUMED = " The other draft model is assumed to be as fast and as often right."
_ANOTHER_MODEL = ["--model", "ANOTHER.gguf"]


@dataclass(frozen=True, slots=True)
class PlanReport:
    """The results of `lead plan`. commands: the commands of each forecast. remarks: facts not measured or not
    included.

    texts: the prompts with which drafts were tried. acceptance: the given value instead of a measured one.
    faster: a suggestion to replace slow draft models. is_doubtful: other programs computed.
    """

    pairs: Sequence[PairTimes]
    forecasts: Sequence[SpeedForecast]
    commands: Sequence[Sequence[str]]
    remarks: Sequence[str]
    texts: Sequence[str]
    acceptance: float | None = None
    faster: Sequence[FasterModel] = ()
    is_doubtful: bool = False

    def __str__(self) -> str:
        """Return paragraphs: measurements, remarks, the table, the fastest arrangement and its commands."""
        parts = [self._measured(), self._prospect().value, *self.remarks, self._table()]
        parts.append(f"Fastest here{self._verdict(best(self.forecasts))}")
        parts += [f"Faster still{self._verdict(each)}" for each in better_elsewhere(self.forecasts)]
        parts += [self._faster(each) for each in self.faster]
        if gains := gains_of_more(self.forecasts):
            advice = [SECOND_BACK] if other_models_pay(self.forecasts) else []
            parts.append("\n".join(["Gain from more backs:", *(_gain(*pair) for pair in gains), *advice]))
        if by_place := best_by_place(self.forecasts):
            winners = (
                f"  {describe(each.arrangement)}, {each.tokens_per_second:.1f} tokens/s" for each in by_place
            )
            parts.append("\n".join(["The best draft model for each place:", *winners]))
        return "\n\n".join(parts)

    def to_json(self) -> str:
        chosen = best(self.forecasts)
        return json.dumps(
            {
                "measured": [asdict(pair) for pair in self.pairs],
                "acceptance": self.acceptance,
                "arrangements": [
                    self._row(each, commands)
                    for each, commands in zip(self.forecasts, self.commands, strict=True)
                ],
                "prospect": self._prospect().name.lower(),
                "fastest": describe(chosen.arrangement),
                "best_by_place": [describe(each.arrangement) for each in best_by_place(self.forecasts)],
                "remarks": list(self.remarks),
                "texts": list(self.texts),
            }
        )

    def _prospect(self) -> Prospect:
        return prospect(self.pairs[0].engine.steps)

    def _faster(self, other: FasterModel) -> str:
        plain, step_s = self.forecasts[0].tokens_per_second, self.pairs[0].engine.steps[1]
        now, then = other.slow.tokens_per_second / plain, other.tokens_per_second / plain
        return (
            f"The speed-up is only {now:.2f} with the {describe(other.slow.arrangement)}. A draft model "
            f"there that takes only {other.token_s / step_s:.2f} of a step per token would give {then:.2f}. "
            f"This assumes an acceptance of {other.acceptance:.0%} instead of {other.slow_acceptance:.0%}."
        )

    def _row(self, each: SpeedForecast, commands: Sequence[str]) -> dict[str, Any]:
        return {
            "arrangement": describe(each.arrangement),
            "kind": each.arrangement.kind,
            "draft_model": each.arrangement.draft_model,
            "tokens_per_second": round(each.tokens_per_second, 2),
            "low": round(each.low, 2),
            "high": round(each.high, 2),
            "commands": list(commands),
        }

    def _measured(self) -> str:
        steps = self.pairs[0].engine.steps
        wider = " and ".join(wider_steps(steps, (4, 8)))
        lines = [f"A step of one token takes {_ms(steps[1])}{wider and f', {wider}'}."]
        for pair in self.pairs:
            lines += [
                self._drafter(source, pair)
                for source in pair.engine.drafters
                if source == DRAFT_MODEL or pair is self.pairs[0]
            ]
            lines += [_contention(split, pair.draft_model) for split in pair.splits]
        return "\n".join(lines)

    def _drafter(self, source: str, pair: PairTimes) -> str:
        drafter = pair.engine.drafters[source]
        cost = drafter.token_s / pair.engine.steps[1]
        name = pair.draft_model if source == DRAFT_MODEL else ""
        begin = (
            f"{name or f'The {_DRAFTERS[source]}'} takes {_ms(drafter.token_s)} for a token, "
            f"{cost:.3f} of a step; "
        )
        if self.acceptance is not None:
            return f"{begin}--acceptance says that {self.acceptance:.0%} of its tokens are accepted."
        rate = drafter.acceptance
        if rate is None:
            return f"{begin}its acceptance is not known."
        low, high = rate.interval()
        return (
            f"{begin}{rate.n_right} of {rate.n_positions} tokens were right: {rate.value:.0%}, with a "
            f"95 % confidence interval of {low:.0%} to {high:.0%}."
        )

    def _table(self) -> str:
        plain = self.forecasts[0].tokens_per_second
        rows: list[tuple[str, ...]] = [("arrangement", "tokens/s", "low", "high", "speed-up")]
        for each in self.forecasts:
            rates = (f"{rate:.1f}" for rate in (each.tokens_per_second, each.low, each.high))
            rows.append((describe(each.arrangement), *rates, f"{each.tokens_per_second / plain:.2f}"))
        table = aligned(rows, 10, gap=2)
        return table if self.acceptance is not None else f"{table}\n{_RANGE}"

    def _verdict(self, chosen: SpeedForecast) -> str:
        speedup = chosen.tokens_per_second / self.forecasts[0].tokens_per_second
        gain = f", {speedup:.2f} times as fast as without drafts" if chosen.arrangement.kind != "none" else ""
        name = describe(chosen.arrangement)
        doubt, assumed = ", if these figures hold" * self.is_doubtful, _ASSUMED * chosen.arrangement.differs
        begin = f"{doubt}: {name}, {chosen.tokens_per_second:.1f} tokens/s{gain}.{assumed} Run\n"
        commands = self.commands[list(self.forecasts).index(chosen)]
        return "\n".join([begin, *(f"  {command}" for command in commands)])


def aligned(rows: Sequence[Sequence[str]], width: int, gap: int = 0) -> str:
    """Return lines of a name and cells: names aligned left, cells aligned right to `width` characters."""
    of_names = gap + max(len(row[0]) for row in rows)
    cells = ((row[0], "".join(f"{cell:>{width}}" for cell in row[1:])) for row in rows)
    return "\n".join(f"{name:<{of_names}}{rest}".rstrip() for name, rest in cells)


def describe(arrangement: Arrangement) -> str:
    """Return a name of the arrangement that is unique within a plan."""
    name = arrangement.draft_model
    return f"{_place(arrangement)}: {name}" if name else _place(arrangement)


def _place(arrangement: Arrangement) -> str:
    if arrangement.split:
        split = arrangement.split
        return f"back on {_cores(split.back_cpus)}, lead on {cpus.as_ranges(split.lead_cpus)}"
    if machines := arrangement.elsewhere:
        where = "back on another machine" if machines.n == 1 else f"{machines.n} backs on other machines"
        speed = f", {machines.speed:g} times as fast" if machines.speed != 1 else ""
        models = ", different draft models" if machines.differ else ""
        return f"{where}, {_ms(machines.round_trip_s)} away{speed}{models}"
    return _ARRANGEMENTS[arrangement.kind]


def _gain(fewer: SpeedForecast, more: SpeedForecast) -> str:
    gain = more.tokens_per_second / fewer.tokens_per_second - 1
    return f"  {describe(more.arrangement)}: {round(100 * gain):+d} % over {n_machines(fewer)}"


def _contention(split: SplitTimes, draft_model: str) -> str:
    name = f" with {draft_model}" if draft_model else ""
    return (
        f"With a back on {_cores(split.back_cpus)}{name}, a step takes {_ms(split.steps[1])}, a draft token "
        f"{_ms(split.token_s)}. While lead and back both compute, these take {split.lead_factor:.2f} and "
        f"{split.back_factor:.2f} times as long."
    )


def _cores(cores: Sequence[int]) -> str:
    return f"{count(len(cores), 'core')} ({cpus.as_ranges(cores)})"


def _ms(seconds: float) -> str:
    ms = 1000 * seconds
    return f"{ms:.0f} ms" if ms >= 1000 else f"{ms:.3g} ms"  # noqa: PLR2004 - no 2.4e+03


# The command lines that start an arrangement


def commands(arrangement: Arrangement, settings: LeadSettings, cores: Sequence[int]) -> list[str]:
    """Return the commands that start an arrangement, in the order to run them; `settings` as given by the
    user.
    """
    lead = ["lead", *_changed(settings.source), *_changed(settings.compute)]
    threads = ["--cpus", settings.cpus] if settings.cpus else []
    if settings.compute.threads or not settings.cpus:
        threads += ["--threads", str(settings.compute.threads or len(cores))]
    model = draft_model_words(settings)
    if arrangement.split:
        back = _renamed(model, "--back", "--back-hf-repo")
        n_threads = settings.compute.threads
        fewer = ["--threads", str(n_threads)] if 0 < n_threads <= len(arrangement.split.lead_cpus) else []
        return [shlex.join([*lead, *back, *_core_words(arrangement.split, fewer)])]
    if arrangement.kind == "remote":
        backs = [model, _ANOTHER_MODEL] if arrangement.differs else [model]
        there = (["lead invite --open", shlex.join(["back", *each, "--join", "CODE"])] for each in backs)
        return [shlex.join([*lead, *threads]), *itertools.chain(*there)]
    return [shlex.join([*lead, *threads, *_drafting_words(arrangement, model, settings)])]


def draft_model_words(settings: LeadSettings) -> list[str]:
    """Return the options of `back` for the draft model that was given with `--draft-model` or `--back`."""
    drafting, own_back = settings.drafting, settings.own_back
    if repository := drafting.hf_repo_draft or own_back.back_hf_repo:
        return ["--hf-repo", repository]
    path = drafting.draft_model or own_back.back
    return ["--model", shown_path(path)] if path and str(path) != "builtin" else []


def _drafting_words(arrangement: Arrangement, model: Sequence[str], settings: LeadSettings) -> list[str]:
    """Return the options for drafting of a lead without a back."""
    if arrangement.kind == "none":
        return ["--mtp", "off"]
    inside = ["--mtp", "on"]
    if arrangement.kind == "engine":
        inside = _renamed(model, "--draft-model", "--hf-repo-draft")
    return [*inside, *_changed(settings.drafting)]


def _renamed(model: Sequence[str], path_option: str, repository_option: str) -> list[str]:
    if not model:
        return [path_option, "builtin"]
    return [{"--model": path_option, "--hf-repo": repository_option}[model[0]], model[1]]


def _core_words(split: CoreSplit, threads: Sequence[str]) -> list[str]:
    """Return the options for cores. `threads`: the option of the lead, if a number was chosen."""
    lead, back = split.lead_cpus, split.back_cpus
    on_cpu = ["--back-gpu-layers", "0"] if split.back_on_cpu else []
    if not cpus.can_pin():
        return [*(threads or ("--threads", str(len(lead)))), "--back-threads", str(len(back)), *on_cpu]
    return ["--cpus", cpus.as_ranges(lead), *threads, "--back-cpus", cpus.as_ranges(back), *on_cpu]


def _changed(group: BaseModel) -> Iterator[str]:
    """Yield the options that differ from their defaults."""
    for name, field in type(group).model_fields.items():
        value = getattr(group, name)
        if name not in _CHOSEN_HERE and value != field.default:
            yield from _words(name, value)


def _words(name: str, value: object) -> list[str]:
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    values = value if isinstance(value, tuple) else (value,)
    shown = (shown_path(each) if isinstance(each, Path) else str(each) for each in values)
    return [f"--{option}", ",".join(shown)]
