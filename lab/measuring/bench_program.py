"""The program `lead bench`: reads the settings, measures every arrangement, prints, sets the exit status."""

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import httpx

from lab.measuring.bench_report import BenchReport, check_plot, draw_plot
from lab.measuring.bench_settings import BenchSettings
from lab.measuring.builtin_questions import rounds_of
from lab.measuring.contest import ContestStage, Way, run_contest
from lab.measuring.measured_answer import Sampling, ask, client
from lab.measuring.questions import ChatQuestion
from lab.measuring.running_lead import report_of, running_lead
from lab.measuring.summary import summarize
from lab.planning.arrangements import KINDS, Arrangement
from lab.planning.measurements import CoreSplit
from lab.planning.plan_program import core_splits, draft_model_names, load_command
from lab.planning.plan_report import commands, describe
from lead.diagnostics.check import exit_with_report
from lead.engine.draft_loading import has_draft_model
from lead.engine.inline_sources import planned_source
from lead.settings.lead_settings import LeadSettings
from shared import cpus
from shared.diagnostics.findings import count
from shared.errors import ConfigError, DuoError
from shared.exits import exiting_in_words, print_text, say
from shared.key_file import read_key
from shared.llama import devices
from shared.logs import configure_logging
from shared.model_files.builtin import short_name
from shared.tls import trusting

NO_DRAFTS = "no drafts"
LOOKUPS = "drafts from the text itself"
_AS_IT_RUNS = "as it runs"
_UNDRAFTED = {"speculative.n_max": 0, "private": True}
"""Request fields with which a lead does not draft, and does not send the request to backs."""
_UNCACHED = {"cache_prompt": False}
"""Request fields with which a lead reads the whole prompt, so that times to first token can be compared."""
_UNSET = [
    word
    for option in ("config", "draft-model", "hf-repo-draft", "back", "back-hf-repo", "back-cpus", "cpus")
    for word in (f"--{option}", "unset")
]
"""Arguments that unset these options, in case the environment sets them. The command of an arrangement
follows, with the options that it needs.
"""
_WARM_UP = ChatQuestion("warm-up", "Hello!", 0)
_N_WARM_UP = 16


def main(arguments: Sequence[str]) -> None:
    """Run `lead bench`. Exits with status 1 and a message on failure, 130 after Ctrl-C."""
    settings = BenchSettings.from_command_line(arguments)
    configure_logging(settings.log_level, as_json=settings.log_json)
    exit_with_report(settings)
    with exiting_in_words(settings.program):
        report = bench(settings)
        print_text(report.to_json() if settings.as_json else str(report))
        if settings.plot:
            draw_plot(report, settings.plot)


def bench(settings: BenchSettings) -> BenchReport:
    """Measure all arrangements. Raises DuoError."""
    if settings.plot:
        check_plot(settings.plot)
    rounds = rounds_of(settings.prompts, settings.n_prompts, settings.repeats, settings.sampling.seed)
    report = BenchReport(settings)
    stages = _server_stages(settings, report) if settings.url else _model_stages(settings, report)
    runs = run_contest(
        stages, rounds, settings.sampling.seed, say, lambda error: report.failures.append(str(error))
    )
    if not runs:
        raise ConfigError(report.failures[0])
    baseline = NO_DRAFTS if any(run.way == NO_DRAFTS for run in runs) else _AS_IT_RUNS
    report.rows = summarize(report.title, runs, baseline=baseline)
    return report


def _model_stages(settings: BenchSettings, report: BenchReport) -> list[ContestStage]:
    """Return a stage for each arrangement on this machine; raises DuoError."""
    cores = sorted(cpus.parse_cpus(settings.cpus)) if settings.cpus else cpus.one_of_each_core()
    chosen = _arrangements(settings, cores)
    path = settings.source.model
    name = (short_name(path) or path.name) if path else settings.source.hf_repo or "the demo model"
    report.title = f"{name}, {_used(settings, cores)}"
    report.commands |= {describe(each): commands(each, variant, cores) for each, variant in chosen}
    return [partial(_arranged, *each, cores, report) for each in chosen]


def _arrangements(settings: BenchSettings, cores: Sequence[int]) -> list[tuple[Arrangement, BenchSettings]]:
    """Return the arrangements, fewest parts first, each with the settings that name its draft model."""
    variants = settings.with_each_draft()
    chosen = [(Arrangement("none"), variants[0])]
    for number, (name, variant) in enumerate(zip(draft_model_names(variants), variants, strict=True)):
        load = load_command(variant, len(cores))
        if not number and planned_source(load.model_copy(update={"draft": None})):
            chosen.append((Arrangement("mtp"), variant))
        if load.draft:
            chosen.append((Arrangement("engine", draft_model=name), variant))
        if has_draft_model(load) and (split := _split(settings, cores)):
            chosen.append((Arrangement("split", split, draft_model=name), variant))
    return sorted(chosen, key=lambda each: KINDS.index(each[0].kind))


def _used(settings: BenchSettings, cores: Sequence[int]) -> str:
    n_threads = settings.compute.threads
    return count(n_threads, "thread") if n_threads else count(len(cores), "core")


def _split(settings: BenchSettings, cores: Sequence[int]) -> CoreSplit | None:
    """Return the division of the cores that the settings name, else a division with about a quarter for the
    back; None: there is only one core.
    """
    if settings.cpus and settings.own_back.back_cpus:
        back = tuple(sorted(cpus.parse_cpus(settings.own_back.back_cpus)))
        return CoreSplit(tuple(cores), back)
    on_gpu = settings.compute.n_gpu_layers != 0 and devices.has_gpu()
    splits = core_splits(cores, lead_is_offloaded=on_gpu)
    return splits[len(splits) // 2] if splits else None


@contextlib.contextmanager
def _arranged(
    arrangement: Arrangement, settings: BenchSettings, cores: Sequence[int], report: BenchReport
) -> Iterator[Sequence[Way]]:
    """Start the lead of an arrangement as its command would, and yield its ways of answering."""
    (command,) = commands(arrangement, settings, cores)
    started = LeadSettings.from_command_line([*_UNSET, *shlex.split(command)[1:]])
    parts = {name: getattr(started, name) for name in ("cpus", "compute", "drafting", "own_back")}
    say(f"starting {describe(arrangement)} …")
    try:
        with running_lead(settings.model_copy(update=parts).located()) as http:
            yield _ways(http, arrangement, settings, report)
            if arrangement.kind == "none":
                _learn_steps(http, report)
    except DuoError as error:
        raise ConfigError(f"{describe(arrangement)}: {error}") from error


def _ways(
    http: httpx.Client, arrangement: Arrangement, settings: BenchSettings, report: BenchReport
) -> Sequence[Way]:
    """Return the ways of answering. Without a draft model: no drafts, and drafts from the text itself."""
    drafted = _sampling(settings, _UNCACHED)
    _warm_up(http, drafted)
    if arrangement.kind != "none":
        return [_way(http, describe(arrangement), drafted)]
    ways = [_way(http, NO_DRAFTS, _sampling(settings, _UNCACHED | _UNDRAFTED))]
    if settings.engine.ngram:
        ways.append(_way(http, LOOKUPS, drafted))
        report.commands[LOOKUPS] = report.commands[describe(arrangement)]
    return ways


def _learn_steps(http: httpx.Client, report: BenchReport) -> None:
    if (of_lead := report_of(http)) and of_lead.planner:
        report.step_ms = of_lead.planner.step_ms


def _server_stages(settings: BenchSettings, report: BenchReport) -> list[ContestStage]:
    """Return a stage for a running server, with and without drafts if it is a lead. Raises ConfigError."""
    url = settings.url or ""
    key = read_key(next(iter(settings.security.api_key), None), settings.security.api_key_file)
    tls = trusting(settings.ca_file) if url.startswith("https:") else None

    @contextlib.contextmanager
    def asked() -> Iterator[list[Way]]:
        with client(url, key, tls) as http:
            model = settings.alias or _model_name(http)
            report.title = f"{model} at {url}"
            is_lead = report_of(http) is not None
            drafted = _sampling(settings, {"model": model} | (_UNCACHED if is_lead else {}))
            _warm_up(http, drafted)
            ways = [_way(http, _AS_IT_RUNS, drafted)]
            if is_lead:
                undrafted = replace(drafted, fields={**drafted.fields, **_UNDRAFTED})
                ways.insert(0, _way(http, NO_DRAFTS, undrafted))
            yield ways
            _learn_steps(http, report)

    return [asked]


def _model_name(http: httpx.Client) -> str:
    """Return the first model that the server lists; raises ConfigError."""
    try:
        answer = http.get("/v1/models")
        return str(answer.raise_for_status().json()["data"][0]["id"])
    except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{http.base_url} does not list its models ({error}). Set the model's name with --alias"
        ) from error


def _sampling(settings: BenchSettings, fields: Mapping[str, Any]) -> Sampling:
    chosen = settings.sampling
    temperature = chosen.with_seed(0).temperature
    return Sampling(temperature, chosen.n_predict, default_filters=True, fields=fields)


def _way(http: httpx.Client, name: str, sampling: Sampling) -> Way:
    return Way(name, lambda question: ask(http, question, sampling))


def _warm_up(http: httpx.Client, sampling: Sampling) -> None:
    """Load the weights into memory."""
    ask(http, _WARM_UP, replace(sampling, n_tokens=_N_WARM_UP))
