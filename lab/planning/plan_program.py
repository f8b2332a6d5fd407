"""The program `lead plan`: reads the settings, measures, predicts, prints, sets the exit status."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from lab.planning.arrangements import KINDS, arrangements, faster_model, forecast, n_machines
from lab.planning.hardware_plan import HardwareReport, rate_of, simulate_plan
from lab.planning.measurements import (
    CoreSplit,
    EngineTimes,
    PairTimes,
    SplitTimes,
    busy_cores,
    busy_warnings,
    with_common_steps,
)
from lab.planning.pinned_process import parallel_map, pinned_process
from lab.planning.plan_report import PlanReport, commands
from lab.planning.plan_settings import PlanSettings
from lab.planning.timing import measure_engine, measure_steps, measure_token
from lab.simulation.hardware import NAMES
from lead.chat_format.request_parts import ChatMessage, TemplateInput
from lead.chat_format.template import TEMPLATE_BYTES, TEMPLATE_SECONDS, model_template
from lead.diagnostics.check import exit_with_report
from lead.engine.commands import DRAFT_MODEL
from lead.engine.draft_loading import has_draft_model
from lead.engine.load import Load
from lead.settings.lead_settings import LeadSettings
from shared import cpus
from shared.errors import ModelLoadError, RequestError
from shared.exits import exiting_in_words, print_text, say
from shared.limited_call import LimitError, call_limited
from shared.llama import devices
from shared.llama.vocabulary import Vocabulary
from shared.logs import configure_logging
from shared.model_files.builtin import short_name, shown_path
from shared.sampling.parameters import SamplingParameters
from shared.settings.model_options import ModelOptions

_MIN_TOGETHER_S, _MAX_TOGETHER_S = 1.5, 8.0
_WIDTHS_TOGETHER = (1, 2, 4)
_ENDLESS = 1 << 20
_STEPS_TOGETHER = 10
"""The steps for which lead and back are timed at the same time, between the two limits of the time above."""
_SHARES = (0.0, 0.25, 0.5)
"""Shares of the cores for the back. A draft model is small: more than half of the cores would only slow the
lead down."""
QUESTIONS = (
    "Tell me a story about a fox who gets lost.",
    "What is speculative decoding?",
    "Tell me a bedtime story about a whale.",
    "How does a for loop work in Python?",
)
_BEGINNINGS = (
    "Once upon a time, there was a little girl who lived near the sea. One day",
    "To install the program on your computer, first",
    "The history of the city begins in the twelfth century, when",
    'def read_lines(path):\n    """Return the lines of a file as a list."""\n',
)
"""Texts on which drafts are tried, for models with a chat template and for others."""


def main(arguments: Sequence[str]) -> None:
    """Run `lead plan`. Exits with status 1 and a message on failure, 130 after Ctrl-C."""
    settings = PlanSettings.from_command_line(arguments)
    configure_logging(settings.log_level, as_json=settings.log_json)
    if not settings.hardware:
        exit_with_report(settings)
    with exiting_in_words(settings.program):
        report = simulated(settings) if settings.hardware else plan(settings)
    print_text(report.to_json() if settings.as_json else str(report))


def plan(settings: PlanSettings) -> PlanReport:
    """Measure for a few seconds and predict; raises DuoError."""
    _check_devices(settings)
    busy = busy_cores()
    cores = sorted(cpus.parse_cpus(settings.cpus)) if settings.cpus else cpus.one_of_each_core()
    variants = settings.with_each_draft()
    loads = [load_command(each, len(cores)) for each in variants]
    sampling = settings.sampling.with_seed(1)
    if settings.prompt is None:
        texts = sample_texts(Vocabulary.load(loads[0].model), settings.conversation.template())
    else:
        texts = [settings.prompt]
    # measure each pair of models, then forecast each arrangement of each pair
    names = draft_model_names(variants)
    pairs = with_common_steps(
        [measure_pair(*each, cores, sampling, texts) for each in zip(names, loads, strict=True)]
    )
    # Arrangements without a draft model are the same for all draft models, so only the first pair has them.
    found = [
        (arrangement, pair, variant)
        for pair, load, variant in zip(pairs, loads, variants, strict=True)
        for arrangement in arrangements(pair, settings.machines if has_draft_model(load) else ())
        if arrangement.draft_model or pair is pairs[0]
    ]
    found.sort(key=lambda each: KINDS.index(each[0].kind))
    forecasts = [forecast(arrangement, pair.engine, settings.acceptance) for arrangement, pair, _ in found]
    faster = (
        faster_model(each, pair.engine, settings.acceptance)
        for each, (arrangement, pair, _) in zip(forecasts, found, strict=True)
        if n_machines(each) == 1
    )
    return PlanReport(
        pairs,
        forecasts,
        [commands(arrangement, variant, cores) for arrangement, _, variant in found],
        remarks(pairs[0].engine, loads[0], cores, busy),
        texts,
        settings.acceptance,
        [each for each in faster if each],
        is_doubtful=bool(busy_warnings(busy)),
    )


def _check_devices(settings: PlanSettings) -> None:
    """Raise ModelLoadError, before anything is measured, if --device names neither a device nor hardware."""
    try:
        devices.chosen(settings.model_options)
    except ModelLoadError as error:
        raise ModelLoadError(f"{error}. Simulated hardware: {', '.join(NAMES)}") from error


def simulated(settings: PlanSettings) -> HardwareReport:
    """Simulate hardware that is not here."""
    plans, machines = [], settings.machines[0]
    with parallel_map(len(cpus.usable())) as spread:
        simulate_cells = partial(spread, rate_of)
        for hardware in settings.hardware:
            say(f"simulating {hardware.title} …")
            plans.append(simulate_plan(hardware, machines, settings.acceptance, simulate_cells))
    return HardwareReport(plans, machines)


def measure_pair(
    name: str, load: Load, cores: Sequence[int], sampling: SamplingParameters, texts: Sequence[str]
) -> PairTimes:
    """Measure the target with a draft model; raises DuoError."""
    with pinned_process(_pinned(cores)) as process:
        say(f"measuring the model{f' with {name}' if name else ''} on all cores …")
        engine = process.submit(measure_engine, load, sampling, texts).result()
    splits = []
    if has_draft_model(load) and DRAFT_MODEL in engine.drafters:
        for split in core_splits(cores, lead_is_offloaded=engine.is_offloaded):
            say(f"measuring with {len(split.back_cpus)} of {len(cores)} cores for a back …")
            splits.append(measure_split(split, load))
    return PairTimes(engine, splits, name)


def draft_model_names(variants: Sequence[LeadSettings]) -> list[str]:
    """Return short, distinct names of the draft models; empty if there is only one."""
    if len(variants) == 1:
        return [""]
    paths = [Path(str(each.drafting.draft_model or each.drafting.hf_repo_draft)) for each in variants]
    names = [short_name(path) or path.name for path in paths]
    return names if len(set(names)) == len(paths) else list(map(shown_path, paths))


def load_command(settings: LeadSettings, n_cores: int) -> Load:
    """Return the engine's command to load the model with threads for all cores; raises DuoError."""
    compute = settings.compute.model_copy(update={"threads": settings.compute.threads or n_cores})
    settings = settings.model_copy(update={"compute": compute}).located()
    return settings.load_command(settings.model_path)


def sample_texts(vocabulary: Vocabulary, chosen_template: str | None = None) -> list[str]:
    """Return questions in the model's chat template, or beginnings of texts for a model without template.

    Raises ConfigError if the chosen template is invalid.
    """
    if chosen_template is None and vocabulary.info.chat_template is None:
        return list(_BEGINNINGS)
    template, _ = model_template(vocabulary, chosen_template)
    asked = [TemplateInput([ChatMessage(role="user", content=question)]) for question in QUESTIONS]
    try:
        return call_limited(lambda: list(map(template.render, asked)), TEMPLATE_SECONDS, TEMPLATE_BYTES)
    except (RequestError, LimitError):
        return list(_BEGINNINGS)


def core_splits(cores: Sequence[int], *, lead_is_offloaded: bool = False) -> list[CoreSplit]:
    """Return the sensible divisions of the cores, fewest cores for the back first; empty for one core.

    A lead on a GPU needs one core.
    """
    n = len(cores)
    if n < 2:  # noqa: PLR2004 - one for each
        return []
    shares = {max(1, round(share * n)) for share in _SHARES}
    n_backs = [n - 1] if lead_is_offloaded else sorted(shares)
    return [
        CoreSplit(tuple(cores[: n - n_back]), tuple(cores[n - n_back :]), back_on_cpu=lead_is_offloaded)
        for n_back in n_backs
    ]


def measure_split(split: CoreSplit, load: Load) -> SplitTimes:
    """Time lead and back separately, then simultaneously; raises DuoError."""
    assert load.draft
    target = _with_threads(load.options, len(split.lead_cpus))
    draft = load.draft.model_copy(
        update={"options": _with_threads(load.draft.options, len(split.back_cpus), on_cpu=split.back_on_cpu)}
    )
    with pinned_process(_pinned(split.lead_cpus)) as lead, pinned_process(_pinned(split.back_cpus)) as back:
        steps = lead.submit(measure_steps, load.model, target).result()
        token_s = back.submit(measure_token, draft).result()
        seconds = min(max(_MIN_TOGETHER_S, _STEPS_TOGETHER * steps[1]), _MAX_TOGETHER_S)
        drafting = back.submit(measure_steps, draft.model, draft.options, [1], _ENDLESS, seconds)
        stepping = lead.submit(measure_steps, load.model, target, _WIDTHS_TOGETHER, _ENDLESS, seconds)
        together, token_together_s = stepping.result(), drafting.result()[1]
    common = together.keys() & steps.keys()
    lead_factor = sum(together[n] / steps[n] for n in common) / len(common)
    return SplitTimes(
        split.lead_cpus,
        split.back_cpus,
        steps,
        token_s,
        max(1.0, lead_factor),
        max(1.0, token_together_s / token_s),
        back_on_cpu=split.back_on_cpu,
    )


def _with_threads(options: ModelOptions, n_threads: int, *, on_cpu: bool = False) -> ModelOptions:
    update = {"threads": n_threads, "threads_batch": 0}
    return options.model_copy(update=update | ({"n_gpu_layers": 0} if on_cpu else {}))


def _pinned(cores: Sequence[int]) -> frozenset[int] | None:
    return frozenset(cores) if cpus.can_pin() else None


def remarks(engine: EngineTimes, load: Load, cores: Sequence[int], busy: float) -> list[str]:
    """Return sentences about facts that could not be measured, may be wrong, or are not included.

    busy: see `busy_cores`.
    """
    found = []
    if not engine.speculates:
        found.append("Drafts are not possible because this model's recurrent states cannot be kept.")
    elif not engine.drafters:
        found.append("No draft model was found. Set --draft-model.")
    elif load.draft and len(cores) == 1:
        found.append("This machine has only one core for the lead, so a back needs another machine.")
    found += busy_warnings(busy)
    found.append(
        "The plan assumes one client, and the same acceptance as on the measured texts. Try your "
        "own text with --prompt. Drafts from n-grams and earlier texts cost nothing and add to "
        "these speeds."
    )
    return found
