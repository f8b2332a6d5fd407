"""`lead doctor`: asks the lead that runs with the same settings why there is no speed-up."""

import importlib.metadata
import os
from collections.abc import Iterator

from lead.http.middleware.hosts import is_loopback
from lead.http.middleware.keys import Role
from lead.server.local_back import local_url
from lead.settings.lead_settings import LeadSettings
from lead.settings.security import SecurityOptions
from shared import cpus
from shared.diagnostics.doctor.diagnosis import Diagnosis, Finding, hint, problem
from shared.diagnostics.doctor.judge import judge_lead, judge_version
from shared.diagnostics.doctor.visit import Visit
from shared.errors import ConfigError
from shared.tls import pinning

_KEY_ADVICE = "give the options with which the lead was started, --api-key-file and the like"


def examine(settings: LeadSettings) -> Diagnosis:
    """Run it with the lead's own options, on its machine, after the lead has answered something long."""
    diagnosis = Diagnosis()
    certificate = settings.security.ssl_cert_file
    try:
        key = _own_key(settings.security)
        tls = pinning(certificate) if certificate else None
    except ConfigError as error:
        diagnosis.add([problem(str(error))])
        return diagnosis
    url = local_url(settings.host, settings.port, tls=tls is not None)
    with Visit(url, key, tls=tls, key_advice=_KEY_ADVICE) as visit:
        diagnosis.add(visit.examine())
        if visit.report:
            diagnosis.add(judge_version(visit.report, importlib.metadata.version("llama-duo")))
            diagnosis.add(judge_lead(visit.report))
            if not visit.report.backs:
                diagnosis.add(judge_address(settings))
    diagnosis.add(judge_machine(settings, cpus.usable(), _load()))
    return diagnosis


def judge_address(settings: LeadSettings) -> Iterator[Finding]:
    """Whether a back could come at all."""
    security = settings.security
    if is_loopback(settings.host):
        yield hint(
            f"it listens on {settings.host}, which other machines cannot reach: for backs there give --host "
            "0.0.0.0 and keys (--api-key-file, --back-key-file)"
        )
    elif security.has_keys and not (security.back_key or security.back_key_file or security.keys_file):
        yield hint("there is no key that a back could show: give --back-key-file")


def judge_machine(settings: LeadSettings, usable: frozenset[int], load: float | None) -> Iterator[Finding]:
    """The lead's threads against the cores that it may use; `load` is the mean number of busy threads."""
    cores = cpus.parse_cpus(settings.cpus) if settings.cpus else usable
    if settings.n_threads > len(cores):
        yield problem(
            f"{settings.n_threads} threads on {len(cores)} cores wait for each other: take fewer --threads"
        )
    back = settings.own_back
    back_cores = cpus.parse_cpus(back.back_cpus) if back.back_cpus else cores
    n_threads = settings.n_threads + back.n_threads if back.is_wanted else 0
    if n_threads > len(cores | back_cores):
        yield problem(
            f"the lead and its own back have {n_threads} threads on {len(cores | back_cores)} cores, and two "
            "programs that spin on the same cores crawl: take fewer --threads, or set cores apart with "
            "--cpus and --back-cpus"
        )
    if load is not None and load > len(usable) + 1:
        yield hint(
            f"{load:.1f} threads are busy on {len(usable)} cores: other programs take what the lead needs"
        )


def _own_key(security: SecurityOptions) -> str | None:
    """One of the lead's keys that may see its figures; raises ConfigError."""
    found = {key.principal.role: key.secret for key in reversed(list(security.keys()))}
    return next((found[role] for role in (Role.CLIENT, Role.ADMIN, Role.BACK) if role in found), None)


def _load() -> float | None:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
