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
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import grown_path


def check(settings: LeadSettings) -> PreflightReport:
    """Loads vocabularies and opens the port for a moment; raises nothing."""
    report = PreflightReport()
    vocabulary = read_model(report, settings.source)
    if vocabulary:
        check_memory(report, vocabulary.info, settings.model_options)
    elif not report.problems:
        _check_demo(report)
    check_cores(report, settings.cpus, lambda: settings.n_threads)
    _check_address(report, settings)
    _check_back(report, settings, vocabulary)
    return report


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
    try:
        found = locate(settings.own_back.source(settings.source)) if settings.own_back.is_wanted else None
    except ConfigError as error:
        report.add_problem(f"--back: {error}")
        return
    if found is None:
        report.add("backs", "none started by the lead; others may connect")
        return
    draft = found.vocabulary
    report.add("backs", f"{describe(draft.info)}, on {settings.own_back.back_cpus or 'any core'}")
    if vocabulary and draft.identify().fingerprint != vocabulary.identify().fingerprint:
        report.add_problem(
            "--back: the draft model has another vocabulary: use a smaller model of the same family"
        )
