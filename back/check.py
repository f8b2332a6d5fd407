"""`back --check`: what the back would draft with, and what would prevent that."""

from back.settings import BackSettings
from shared.diagnostics.preflight import PreflightReport, check_cores, check_memory, read_model
from shared.errors import ConfigError
from shared.models.builtin import builtin_draft
from shared.settings.model_source import ModelSource


def check(settings: BackSettings) -> PreflightReport:
    """Loads the vocabulary; does not contact the lead, which may be started later. Raises nothing."""
    report, source = PreflightReport(), settings.source
    try:
        if source.model is None and source.hf_repo is None:
            source = ModelSource(model=builtin_draft())
        settings.read_key()
    except ConfigError as error:
        report.add_problem(str(error))
    with read_model(report, source) as vocabulary:
        if vocabulary:
            check_memory(
                report,
                vocabulary.info,
                settings.model_options,
                settings.n_slots,
                settings.n_step_checkpoints,
            )
    check_cores(report, settings.cpus, lambda: settings.n_threads)
    report.add("lead", ", ".join(settings.lead))
    return report
