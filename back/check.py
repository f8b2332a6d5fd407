"""`back --check`: reports whether a back with these options can draft, and what it would load."""

import contextlib

from back.model_fit import fitted, plan_draft
from back.settings import BackSettings
from shared.diagnostics.preflight import PreflightReport, check_cores, check_memory, read_model
from shared.errors import ConfigError, ModelLoadError
from shared.model_files.builtin import builtin_draft
from shared.settings.model_source import ModelSource


def check(settings: BackSettings) -> PreflightReport:
    """Check the settings and the draft model; return the report.

    Loads only the model's vocabulary. Does not contact the lead, which may start later. Raises no errors:
    problems are in the report.
    """
    report, source = PreflightReport(), settings.source
    try:
        if source.model is None and source.hf_repo is None:
            source = ModelSource(model=builtin_draft())
        settings.read_key()
    except ConfigError as error:
        report.problems.append(str(error))
    with read_model(report, source) as vocabulary:
        if vocabulary:
            with contextlib.suppress(ModelLoadError):  # `check_memory` reports it
                settings = fitted(settings, vocabulary.info.path)
            path = vocabulary.info.path
            check_memory(report, lambda: plan_draft(settings, path), {})
    check_cores(report, settings.cpus, lambda: settings.n_threads)
    report.add("lead", ", ".join(settings.lead))
    return report
