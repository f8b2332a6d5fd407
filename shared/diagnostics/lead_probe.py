"""Asks a lead for its state over HTTP; each kind of failure is a finding."""

import socket
import ssl
import statistics
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Self
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shared.diagnostics.findings import Finding, good, hint, problem
from shared.terminal import error_reason
from shared.tls_failures import HANGS_UP, SPEAKS_PLAIN, distrust_behind, explain_distrust

NonNegative = Annotated[int, Field(ge=0, lt=1 << 53)]
"""A number that a float can hold exactly, because checks divide and multiply it."""
_Milliseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class LeadInfo(_Record):
    """The lead itself. model: the model's name for clients. cores: the cores that the lead may run on.
    n_threads: the threads of its engine.
    """

    version: str | None = None
    protocol: int | None = None
    model: str = ""
    speculates: bool | None = None
    promise: str = ""  # the guarantee for its texts
    cores: frozenset[int] = frozenset()
    n_threads: NonNegative = 0


class BackReport(_Record):
    """A connected back and the outcomes of its drafts."""

    name: str
    model: str = ""
    transport: str = ""
    connected_seconds: float = 0
    n_drafts: NonNegative = 0
    n_draft_tokens: NonNegative = 0
    n_used_tokens: NonNegative = 0
    n_accepted_tokens: NonNegative = 0
    n_stale_drafts: NonNegative = 0
    n_invalid_drafts: NonNegative = 0


class SourceReport(_Record):
    """A draft source in the planner's report, such as `ngram`. token_ms: the milliseconds per draft token;
    None until measured.
    """

    n_scored: NonNegative = 0
    n_right: NonNegative = 0
    token_ms: float | None = None


class PlannerReport(_Record):
    """The planner's report. step_ms: T(n) by n. depths: how often each depth was chosen for a sequence."""

    policy: str = "adaptive"
    step_ms: dict[NonNegative, _Milliseconds] = {}
    n_steps: NonNegative = 0
    n_committed: NonNegative = 0
    n_draft_tokens: NonNegative = 0
    n_accepted_tokens: NonNegative = 0
    depths: dict[NonNegative, NonNegative] = {}
    sources: dict[str, SourceReport] = {}

    @property
    def plain_step_ms(self) -> float | None:
        """T(1) in milliseconds; None until it is measured."""
        return self.step_ms.get(1)

    @property
    def idle_share(self) -> float:
        """The share of depth 0 among all chosen depths; 0 before the first choice."""
        return self.depths.get(0, 0) / (sum(self.depths.values()) or 1)


class LeadReport(_Record):
    """The lead's report. planner: None while the engine is busy or being restarted."""

    lead: LeadInfo = LeadInfo()
    backs: tuple[BackReport, ...] = ()
    planner: PlannerReport | None = None


_SECONDS = 10.0
"""The timeout of a request; the lead's report waits for the end of a step."""
_N_ASKED = 5


class LeadProbe:
    """A context manager that examines one lead. `run` sets `report` if the lead returns one."""

    def __init__(
        self,
        url: str,
        key: str | None,
        transport: httpx.BaseTransport | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        key_advice: str = "set --key or --key-file",
    ) -> None:
        """url: has no slash at its end. key: a client's, a back's or an admin's key.

        tls: how to verify https://…; None: with the system's CA certificates. key_advice: a text that says
        how to set another key.
        """
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._url = url
        self._has_key = key is not None
        self._key_advice = key_advice
        self._client = httpx.Client(
            base_url=url,
            headers=headers,
            timeout=_SECONDS,
            trust_env=False,
            transport=transport,
            verify=tls or True,
        )
        self.report: LeadReport | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def run(self) -> Iterator[Finding]:
        """Yield findings on whether the lead can be reached, is ready and accepts the key; set `report`."""
        try:
            times = list(self._ask_health())
            answer = self._client.get("/v1/speculation")
        except httpx.TransportError as error:
            yield problem(f"no lead answers at {self._url} ({_explain(error, self._url)})")
            return
        except httpx.HTTPStatusError as error:
            yield from self._explain_health(error.response)
            return
        yield good(
            f"the lead at {self._url} is ready and answers in {1000 * statistics.median(times):.1f} ms"
        )
        yield from self._read(answer)

    def _ask_health(self) -> Iterator[float]:
        """Yield the seconds of each request except the first, which includes connecting."""
        for number in range(_N_ASKED):
            began = time.perf_counter()
            self._client.get("/health").raise_for_status()
            if number:
                yield time.perf_counter() - began

    def _explain_health(self, response: httpx.Response) -> Iterator[Finding]:
        said = error_reason(response.content, response.status_code)
        if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
            yield problem(f"the lead at {self._url} is not ready ({said}). Wait, or read its log")
        else:
            yield problem(f"the server at {self._url} is not a lead: /health returned {said}")

    def _read(self, answer: httpx.Response) -> Iterator[Finding]:
        if answer.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            wrong = "this one is not valid" if self._has_key else "none is set"
            yield problem(f"the lead requires a key, and {wrong}: {self._key_advice}")
            return
        try:
            self.report = LeadReport.model_validate_json(answer.raise_for_status().content)
        except (httpx.HTTPStatusError, ValidationError):
            said = error_reason(answer.content, answer.status_code)
            advice = "Check that it is a llama-duo lead"
            if answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE:  # a router without a loaded model
                advice = "Request a long answer, then run doctor again"
            yield hint(f"the lead does not report on speculation ({said}). {advice}")


def is_own_address(url: str) -> bool:
    """Return whether the host of `url` is this machine; False for unknown names."""
    host = urlsplit(url).hostname or ""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    for family, kind, _, _, address in found:
        with socket.socket(family, kind) as probe:
            try:
                probe.bind(address)  # only an address of this machine can be bound
            except OSError:
                continue
            return True
    return False


def _explain(error: httpx.TransportError, url: str) -> str:
    host = urlsplit(url).hostname or ""
    if isinstance(error, httpx.TimeoutException):
        return f"no answer for {_SECONDS:.0f} seconds. Check the address, the network and firewalls"
    words = str(error)
    if "refused" in words:
        return (
            "the machine answers, but no program listens on this port. Check that the lead runs "
            "with this --port, and if it is on another machine, with --host 0.0.0.0"
        )
    if any(each in words for each in ("resolution", "not known", "No address")):
        return f"unknown host name {host}. Try its IP address"
    return _explain_tls(error, url) or words or type(error).__name__


def _explain_tls(error: httpx.TransportError, url: str) -> str | None:
    if distrust := distrust_behind(error):
        return f"it is not trusted: {explain_distrust(distrust)}"
    if "SSL" in str(error):
        return SPEAKS_PLAIN
    if isinstance(error, httpx.RemoteProtocolError) and url.startswith("http:"):
        return HANGS_UP
    return None
