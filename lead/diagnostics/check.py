"""`lead --check`: what the lead would serve, and what would prevent that."""

from lead.server.server import listen
from lead.settings.lead_settings import LeadSettings
from shared.diagnostics.preflight import (
    PreflightReport,
    check_cores,
    check_memory,
    describe,
    locate,
    read_model,
)
from shared.errors import ConfigError
from shared.llama.memory_plan import describe_checkpoints
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import grown_path
from shared.settings.model_options import ModelOptions


def check(settings: LeadSettings) -> PreflightReport:
    """Loads vocabularies and opens the port for a moment; raises nothing."""
    report = PreflightReport()
    with read_model(report, settings.source) as vocabulary:
        if vocabulary:
            _check_memory(report, vocabulary, settings.model_options)
    if not vocabulary and not report.problems:
        _check_demo(report)
    check_cores(report, settings.cpus, lambda: settings.n_threads)
    _check_address(report, settings)
    _check_back(report, settings, vocabulary)
    return report


def _check_memory(report: PreflightReport, vocabulary: Vocabulary, options: ModelOptions) -> None:
    plan = check_memory(report, vocabulary.info, options)
    if plan and (checkpoints := describe_checkpoints(plan.traits, options)):
        report.add("checkpoints", checkpoints)


def _check_demo(report: PreflightReport) -> None:
    try:
        path = grown_path()
    except ConfigError as error:
        report.add_problem(str(error))
        return
    made = f"at {path}" if path.is_file() else "created at the first start"
    report.add("model", f"the built-in demo model, 0.8 GB, {made}")


def _check_address(report: PreflightReport, settings: LeadSettings) -> None:
    try:
        settings.security.keyring()
        listen(settings.host, settings.port).close()
    except ConfigError as error:
        report.add_problem(str(error))
    keys = "with keys" if settings.security.has_keys else "no keys: anyone who can reach it can use it"
    report.add("address", f"{settings.host} port {settings.port}, {keys}")


def _check_back(report: PreflightReport, settings: LeadSettings, vocabulary: Vocabulary | None) -> None:
    if not settings.own_back.is_wanted:
        _add_no_back(report)
        return
    try:
        with locate(settings.own_back.source(settings.source)) as found:
            if found is None:
                _add_no_back(report)
                return
            draft = found.vocabulary
    except ConfigError as error:
        report.add_problem(f"--back: {error}")
        return
    report.add("backs", f"{describe(draft.info)}, on {settings.own_back.back_cpus or 'any core'}")
    if vocabulary and draft.identify().fingerprint != vocabulary.identify().fingerprint:
        report.add_problem(
            "--back: the draft model has another vocabulary: use a smaller model of the same family"
        )


def _add_no_back(report: PreflightReport) -> None:
    report.add("backs", "none started by the lead; others may connect")
