"""`back doctor`: why a back with these settings brings no speed-up to its lead."""

import asyncio
import importlib.metadata
import ssl
import statistics
import time
from collections.abc import Callable, Iterator

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from back.dial import refusal
from back.settings import BackSettings
from shared import cpus
from shared.diagnostics.doctor.diagnosis import Diagnosis, Finding, good, problem
from shared.diagnostics.doctor.judge import (
    judge_cores,
    judge_crowding,
    judge_draft_speed,
    judge_lead,
    judge_round_trip,
    judge_version,
)
from shared.diagnostics.doctor.visit import Visit, is_own_address
from shared.errors import ConfigError, DuoError, ProtocolError
from shared.llama.model import Model
from shared.llama.span import Span
from shared.models.builtin import builtin_draft
from shared.protocol import PROTOCOL_VERSION, Hello, Refused, VocabularyId, Welcome, parse_lead_message
from shared.terminal import one_line

_N_PINGS = 15
_N_STEPS = 24
_SECONDS = 10.0


def examine(settings: BackSettings) -> Diagnosis:
    """Reads the model, asks the lead, joins it for a moment and drafts for nobody; raises nothing."""
    diagnosis = Diagnosis()
    try:
        key = settings.read_key()
        settings = settings.discovered().located()
        tls = settings.tls()
        model = _load(settings)
    except ConfigError as error:
        diagnosis.add([problem(str(error))])
        return diagnosis
    with Visit(settings.lead, key, tls=tls) as visit:
        diagnosis.add(visit.examine())
    if diagnosis.status == 0:
        hello = _hello(settings, model.vocabulary.identify())
        diagnosis.add(_join(settings, hello, key, tls, visit))
    diagnosis.add(_draft(settings, model, visit))
    if visit.report:
        if is_own_address(settings.lead):
            diagnosis.add(judge_cores(visit.report, cpus.usable(), settings.n_threads))
        diagnosis.add(judge_lead(visit.report, settings.own_name))
    return diagnosis


def _load(settings: BackSettings) -> Model:
    """As the back itself would; raises ConfigError."""
    if settings.cpus:
        cpus.pin(cpus.parse_cpus(settings.cpus))
    options = settings.model_options.model_copy(update={"ctx_size": _N_STEPS * 2, "parallel": 1})
    return Model(settings.source.model or builtin_draft(), options)


def _hello(settings: BackSettings, vocabulary: VocabularyId) -> Hello:
    name = f"{settings.own_name[:57]}-doctor"
    return Hello(protocol=PROTOCOL_VERSION, name=name, vocabulary=vocabulary, n_ctx=0, n_sequences=1)


def _join(
    settings: BackSettings, hello: Hello, key: str | None, tls: ssl.SSLContext | None, visit: Visit
) -> Iterator[Finding]:
    """Key, protocol and vocabulary as the lead sees them, and the round trip of messages."""
    if visit.report:
        yield from judge_version(visit.report, importlib.metadata.version("llama-duo"))
    try:
        seconds = asyncio.run(measure_round_trip(settings.websocket_url, hello, key, tls))
    except InvalidStatus as error:
        yield problem(f"the lead refuses this back: {refusal(error)}")
    except ProtocolError as error:
        yield problem(f"the lead refuses this back: {error}")
    except (OSError, ConnectionClosed, InvalidHandshake) as error:
        yield problem(f"no WebSocket to {settings.websocket_url} ({error}): does a proxy stand between?")
    else:
        yield good(f"it takes this back: key, protocol and vocabulary ({hello.vocabulary.model}) fit")
        yield from judge_round_trip(1000 * seconds, visit.report.planner if visit.report else None)


async def measure_round_trip(
    url: str, hello: Hello, key: str | None, tls: ssl.SSLContext | None = None
) -> float:
    """Median seconds of a ping on a connection that the lead has welcomed.

    Raises ProtocolError with the lead's reason, OSError, and what websockets raises.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        asyncio.timeout(_SECONDS),
        connect(url, additional_headers=headers, ssl=tls, proxy=None) as connection,
    ):
        await connection.send(hello.model_dump_json())
        match parse_lead_message(await connection.recv()):
            case Welcome():
                pass
            case Refused(reason=reason):
                raise ProtocolError(one_line(reason))
            case other:
                raise ProtocolError(f"it said {other.type} instead of welcome")
        times = [await (await connection.ping()) for _ in range(_N_PINGS)]
    return statistics.median(times)


def _draft(settings: BackSettings, model: Model, visit: Visit) -> Iterator[Finding]:
    if not model.can_trim:
        yield problem(
            f"{model.vocabulary.info.name} cannot draft: tokens cannot be taken back from a recurrent or "
            "hybrid model's memory; choose another draft model"
        )
        return
    try:
        seconds = measure_step(model)
    except DuoError as error:
        yield problem(f"the draft model cannot be run: {error}")
        return
    report = visit.report
    found = judge_draft_speed(1000 * seconds, report.planner if report else None)
    where = f" (with --threads {settings.n_threads})"
    yield from (Finding(each.weight, each.sentence + where) for each in found)
    if report:
        is_beside = is_own_address(settings.lead)
        yield from judge_crowding(report, settings.own_name, 1000 * seconds, beside=is_beside)


def measure_step(model: Model, clock: Callable[[], float] = time.perf_counter) -> float:
    """Median seconds of decoding one token; the first ones, which warm up, do not count."""
    times = []
    for position in range(_N_STEPS):
        began = clock()
        model.decode([Span(0, position, [1], 1)])
        times.append(clock() - began)
    return statistics.median(times[_N_STEPS // 4 :])
