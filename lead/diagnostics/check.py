"""`lead --check`: what it would serve, and what would keep it from doing so."""

from lead.server.server import listen
from lead.settings.lead_settings import LeadSettings
from shared.diagnostics.check import Report, check_cores, check_memory, describe, read_model
from shared.errors import ConfigError
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import grown_path
from shared.models.split import parts_of


def check(settings: LeadSettings) -> Report:
    """Loads vocabularies and takes the port for a moment; raises nothing."""
    report = Report()
    vocabulary = read_model(report, settings.source)
    if vocabulary:
        check_memory(report, vocabulary.info, settings.model_options)
    elif not report.problems:
        _check_demo(report)
    check_cores(report, settings.cpus, lambda: settings.n_threads)
    _check_address(report, settings)
    _check_back(report, settings, vocabulary)
    return report


def _check_demo(report: Report) -> None:
    try:
        path = grown_path()
    except ConfigError as error:
        report.complain(str(error))
        return
    made = f"at {path}" if path.is_file() else "made at the first start"
    report.say("model", f"the built-in demo model, 0.8 GB, {made}")


def _check_address(report: Report, settings: LeadSettings) -> None:
    try:
        settings.security.keyring()
        listen(settings.host, settings.port).close()
    except ConfigError as error:
        report.complain(str(error))
    keys = "with keys" if settings.security.has_keys else "no keys: whoever reaches it may use it"
    report.say("address", f"{settings.host} port {settings.port}, {keys}")


def _check_back(report: Report, settings: LeadSettings, vocabulary: Vocabulary | None) -> None:
    try:
        path = settings.own_back.located(settings.source.cached_only()).path()
        if path is None:
            report.say("backs", "none of its own; others may join")
            return
        parts_of(path)
        draft = Vocabulary.load(path)
    except ConfigError as error:
        report.complain(f"--back: {error}")
        return
    report.say("backs", f"{describe(draft.info)}, on {settings.own_back.back_cpus or 'any core'}")
    if vocabulary and draft.identify().fingerprint != vocabulary.identify().fingerprint:
        report.complain("--back: its tokens are not the model's: take a smaller model of the same family")
