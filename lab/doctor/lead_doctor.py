"""`lead doctor`: find out why the lead that runs with the same options is not faster."""

from collections.abc import Iterator

from lab.doctor.lead_checks import check_lead, check_version
from lead.server.local_back import invite_command, local_url
from lead.settings.host_names import is_loopback
from lead.settings.keys import Role
from lead.settings.lead_settings import LeadSettings
from lead.settings.security import SecurityOptions
from shared import cpus
from shared.diagnostics.findings import DoctorReport, Finding, count, good, hint, problem
from shared.diagnostics.lead_probe import LeadProbe
from shared.errors import ConfigError
from shared.llama import devices, library
from shared.tls import pinning
from shared.version import VERSION

_KEY_ADVICE = "use the options of the running lead, such as --api-key-file"


def diagnose(settings: LeadSettings) -> DoctorReport:
    """Check a running lead; call this with its options, on its machine, after it has served a long answer."""
    report = DoctorReport()
    certificate = settings.security.ssl_cert_file
    try:
        key = _own_key(settings.security)
        tls = pinning(certificate) if certificate else None
    except ConfigError as error:
        report.add([problem(str(error))])
        return report
    url = local_url(settings.host, settings.port, tls=tls is not None)
    with LeadProbe(url, key, tls=tls, key_advice=_KEY_ADVICE) as probe:
        report.add(probe.run())
        if probe.report:
            report.add(check_version(probe.report, VERSION))
            report.add(name_model(probe.report.lead.model, settings))
            report.add(check_lead(probe.report))
            if not probe.report.backs:
                report.add(check_address(settings))
    report.add([good(f"CPU kernel: {library.describe_kernel()}")])
    usable = cpus.usable()
    try:
        if settings.cpus:  # as the lead does; the number of threads depends on it
            cpus.pin(cpus.parse_cpus(settings.cpus))
        report.add(check_threads(settings, usable, cpus.load_average()))
    except ConfigError as error:
        report.add([problem(str(error))])
    return report


def name_model(model: str, settings: LeadSettings) -> Iterator[Finding]:
    """Name the examined model. With --models-dir, say which of the loaded models it is."""
    if not model:  # an older lead
        return
    which = ""
    if settings.served.models_dir:
        which = ", the loaded model that a back on this machine drafts for, or would draft for"
    yield good(f"model: {model}{which}")


def check_address(settings: LeadSettings) -> Iterator[Finding]:
    security = settings.security
    if is_loopback(settings.host):
        yield hint(
            f"with --host {settings.host}, only this machine and invited machines reach the lead. To invite "
            f"a machine, run {invite_command(local_url(settings.host, settings.port, tls=security.https))}"
        )
    elif security.has_keys and not (security.back_key or security.back_key_file or security.keys_file):
        yield hint("no key for backs is set. Set --back-key-file")


def check_threads(settings: LeadSettings, usable: frozenset[int], load: float | None) -> Iterator[Finding]:
    """Compare the number of the lead's threads with its cores. load: the mean number of busy threads."""
    cores = cpus.parse_cpus(settings.cpus) if settings.cpus else usable
    if settings.n_threads > len(cores):
        yield problem(
            f"{settings.n_threads} threads on {count(len(cores), 'core')} slow each other down. Lower "
            "--threads"
        )
    back = settings.own_back
    back_cores = cpus.parse_cpus(back.back_cpus) if back.back_cpus else cores
    computes = not devices.has_gpu() or settings.model_options.n_gpu_layers == 0  # its threads busy-wait
    n_threads = settings.n_threads + back.n_threads if back.is_wanted and computes else 0
    if n_threads > len(cores | back_cores):
        yield problem(
            f"the lead and its own back have {n_threads} threads on {count(len(cores | back_cores), 'core')}"
            ". Both busy-wait and slow each other down. Lower --threads, or separate cores with --cpus and "
            "--back-cpus"
        )
    if load is not None and load > len(usable) + 1:
        yield hint(
            f"{load:.1f} threads are busy on {count(len(usable), 'core')}. Stop the programs that compete "
            "with the lead"
        )


def _own_key(security: SecurityOptions) -> str | None:
    """Return a key of the lead that allows reading its report; raises ConfigError."""
    found = {key.principal.role: key.secret for key in reversed(list(security.keys()))}
    return next((found[role] for role in (Role.CLIENT, Role.ADMIN, Role.BACK) if role in found), None)
