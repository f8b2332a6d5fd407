"""`back doctor`: find out why a back with these options does not make its lead faster."""

import asyncio
import ssl
import statistics
import time
from collections.abc import Callable, Iterator

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from back.dial import OtherVocabularyError, RefusedError, greet, refusal
from back.settings import BackSettings
from back.translation.vocabulary_download import lead_vocabulary
from lab.doctor.lead_checks import (
    check_drafting,
    check_lead,
    check_round_trip,
    check_shared_cores,
    check_version,
)
from shared import cpus
from shared.diagnostics.findings import DoctorReport, Finding, good, hint, problem
from shared.diagnostics.lead_probe import LeadProbe, is_own_address
from shared.errors import ConfigError, DuoError, ProtocolError
from shared.llama import library
from shared.llama.model import Model
from shared.llama.span import Span
from shared.memory.plan_memory import plan_memory
from shared.model_files.builtin import builtin_draft
from shared.protocol import PROTOCOL_VERSION, Hello
from shared.translation.retention import N_CONTEXT, Retention, measure_retention
from shared.translation.stored_pair import stored_pair
from shared.translation.vocabulary_pair import prefix_of
from shared.version import VERSION

_N_PINGS = 15
_N_STEPS = 24
_SECONDS = 10.0


def diagnose(settings: BackSettings) -> DoctorReport:
    """Load the model, fetch the lead's report, connect for a moment and time drafting.

    Raises nothing: problems are in the report.
    """
    report = DoctorReport()
    if len(settings.lead) > 1:
        report.add([problem("several leads are set, but doctor examines only one. Set --lead once")])
        return report
    try:
        key = settings.read_key()
        settings = settings.discovered().located()
        tls = settings.tls()
        model = _load(settings)
    except ConfigError as error:
        report.add([problem(str(error))])
        return report
    with LeadProbe(settings.url, key, tls=tls) as probe:
        report.add(probe.run())
    if report.status == 0:
        report.add(_join(settings, model, key, tls, probe))
    report.add([good(f"CPU kernel: {library.describe_kernel()}")])
    report.add(_draft(settings, model, probe))
    if probe.report:
        if is_own_address(settings.url):
            report.add(check_shared_cores(probe.report, cpus.usable(), settings.n_threads))
        report.add(check_lead(probe.report, settings.own_name))
    return report


def _load(settings: BackSettings) -> Model:
    """Load the model as the back would; raises ConfigError."""
    if settings.cpus:
        cpus.pin(cpus.parse_cpus(settings.cpus))
    options = settings.model_options.model_copy(update={"ctx_size": N_CONTEXT, "parallel": 1})
    return Model(plan_memory(settings.source.model or builtin_draft(), options))


def _join(
    settings: BackSettings, model: Model, key: str | None, tls: ssl.SSLContext | None, probe: LeadProbe
) -> Iterator[Finding]:
    """Yield whether the lead accepts key, protocol and vocabulary, and the time of a round trip."""
    if probe.report:
        yield from check_version(probe.report, VERSION)
    name, vocabulary = f"{settings.own_name[:57]}-doctor", model.vocabulary.identify()
    hello = Hello(protocol=PROTOCOL_VERSION, name=name, vocabulary=vocabulary, n_ctx=0, n_sequences=1)
    try:
        seconds = asyncio.run(measure_round_trip(settings.websocket_url, hello, key, tls))
    except InvalidStatus as error:
        yield problem(f"the lead refuses this back: {refusal(error)}")
    except OtherVocabularyError:
        yield from _translate(settings, model, key, tls)
    except (RefusedError, ProtocolError) as error:
        yield problem(str(error))
    except (OSError, ConnectionClosed, InvalidHandshake) as error:
        yield problem(
            f"no WebSocket connection to {settings.websocket_url} ({error}). Check whether a proxy blocks it"
        )
    else:
        yield good(
            f"the lead accepts this back: key, protocol and vocabulary ({hello.vocabulary.model}) match"
        )
        yield from check_round_trip(1000 * seconds, probe.report.planner if probe.report else None)


def _translate(
    settings: BackSettings, model: Model, key: str | None, tls: ssl.SSLContext | None
) -> Iterator[Finding]:
    """Yield whether the draft model can draft in the lead's vocabulary, and how well."""
    try:
        target = lead_vocabulary(settings.url, key, tls)
        projection = stored_pair(model.vocabulary, target)
    except (DuoError, OSError) as error:
        yield problem(f"the lead has another vocabulary, but this back cannot translate: {error}")
        return
    try:
        kept = measure_retention(model, projection, prefix_of(model.vocabulary, target))
    except DuoError as error:
        yield problem(f"this back cannot translate because the draft model failed: {error}")
        return
    yield hint(
        "this back translates because its tokenizer differs from the lead's. "
        f"{100 * projection.share_exact:.0f} % of its tokens have an exact counterpart there, and the "
        f"others are split or joined. {_expectation(kept)}"
    )


def _expectation(kept: Retention | None) -> str:
    if kept is None:
        return "A model with the same tokenizer needs no translation"
    percent = f"{100 * kept.share:.0f} %"
    return (
        f"Expect about {percent} of the acceptance of a model with the lead's tokenizer, as measured on "
        f"{kept.n_tokens} tokens of the draft model's own text"
    )


async def measure_round_trip(
    url: str, hello: Hello, key: str | None, tls: ssl.SSLContext | None = None
) -> float:
    """Return the median round-trip time of a ping on an accepted connection, in seconds.

    Raises the errors of `greet`, OSError, and websockets' exceptions.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        asyncio.timeout(_SECONDS),
        connect(url, additional_headers=headers, ssl=tls, proxy=None) as connection,
    ):
        await greet(connection, url, hello)
        times = [await (await connection.ping()) for _ in range(_N_PINGS)]
    return statistics.median(times)


def _draft(settings: BackSettings, model: Model, probe: LeadProbe) -> Iterator[Finding]:
    try:
        seconds = measure_step(model)
    except DuoError as error:
        yield problem(f"the draft model failed: {error}")
        return
    is_local = is_own_address(settings.url)
    where = f" with --threads {settings.n_threads}"
    yield from check_drafting(probe.report, settings.own_name, 1000 * seconds, where, is_local=is_local)


def measure_step(model: Model, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the median time of decoding a token, in seconds, without the first quarter, which is warm-up."""
    times = []
    for position in range(_N_STEPS):
        began = clock()
        model.decode([Span(0, position, [1], 1)])
        times.append(clock() - began)
    return statistics.median(times[_N_STEPS // 4 :])
