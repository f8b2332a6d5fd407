"""`back --check`: what it would draft with, and what would keep it from doing so."""

from back.settings import BackSettings
from shared.diagnostics.check import Report, check_cores, check_memory, read_model
from shared.errors import ConfigError
from shared.models.builtin import builtin_draft


def check(settings: BackSettings) -> Report:
    """Loads the vocabulary; does not ask the lead, which may be started later. Raises nothing."""
    report = Report()
    try:
        if settings.model is None and settings.hf_repo is None:
            settings = settings.model_copy(update={"model": builtin_draft()})
        settings.read_key()
    except ConfigError as error:
        report.complain(str(error))
    vocabulary = read_model(report, settings)
    if vocabulary:
        check_memory(report, vocabulary.info, settings.model_options)
    check_cores(report, settings.cpus, lambda: settings.n_threads)
    report.say("lead", settings.lead)
    return report
