"""`back --check`: what it would draft with, and what would keep it from doing so."""

from back.settings import BackSettings
from shared.diagnostics.check import Report, check_cores, check_memory, read_model
from shared.errors import ConfigError
from shared.llama.model import ModelOptions
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
        options = ModelOptions(
            path=vocabulary.info.path,
            n_ctx=settings.ctx_size,
            n_slots=settings.parallel,
            n_batch=1,
            n_threads=settings.n_threads,
            n_gpu_layers=settings.n_gpu_layers,
            compute=settings.compute,
        )
        check_memory(report, vocabulary.info, options)
    check_cores(report, settings.cpus, lambda: settings.n_threads)
    report.say("lead", settings.lead)
    return report
