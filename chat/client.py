"""The HTTP side of chat: streams answers from a lead or any other OpenAI-compatible server.

It knows requests, statuses and event streams, but nothing of the screen or the conversation.
"""

import math
import re
import ssl
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import ip_address
from typing import Any, Self

import httpx
from httpx_sse import EventSource, SSEError, connect_sse
from pydantic import ValidationError

from chat.answer import ChatAnswer, Piece
from chat.errors import IncompleteAnswerError, LeadError, NotReadyError, RejectedError, UnreachableError
from chat.wire import BacksReply, Chunk, ErrorReply, ModelsReply
from shared.answer_stream import AnswerStream
from shared.diagnostics.lead_probe import BackReport
from shared.errors import ConfigError
from shared.tls import trusting_nothing
from shared.tls_failures import HANGS_UP, SPEAKS_PLAIN, distrust_behind, explain_distrust, is_plain

CONNECT_TIMEOUT_S = 10.0
GET_TIMEOUT_S = 3.0
_HOME_DOMAINS = (".local", ".lan", ".home.arpa", ".internal", ".localhost")

_OTHER_TASKS = ("embedding", "rerank")
"""The tasks of models that do not chat."""
_NOT_SUPPORTED = (httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED, httpx.codes.NOT_IMPLEMENTED)


class LeadClient:
    """A blocking HTTP client of one server, for one request at a time."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        locate: Callable[[], tuple[str, ssl.SSLContext | None]] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """timeout_s: the longest time without data. tls: verifies https://…; None: the system's
        authorities do.

        locate: returns the server's new `url` and `tls` when its address has changed. transport: replaces the
        network in tests.
        """
        self._api_key = api_key
        self._asks_for_sources = True
        self._model: str | None = None
        self._timeout_s = timeout_s
        self._locate = locate
        self._transport = transport
        self._connect_to(url, tls)

    def _connect_to(self, url: str, tls: ssl.SSLContext | None) -> None:
        self.url = url
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {self._api_key}"} if self._api_key else {},
            timeout=httpx.Timeout(self._timeout_s, connect=min(CONNECT_TIMEOUT_S, self._timeout_s)),
            verify=tls or url.startswith("https:") or trusting_nothing(),
            transport=self._transport,
            # People take longer to type than servers keep an idle connection.
            limits=httpx.Limits(max_keepalive_connections=0),
            trust_env=_may_use_proxy(httpx.URL(url)),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def locate_again(self) -> None:
        """Find the server's new address, which takes seconds. If it is not found, the old address is kept."""
        if self._locate:
            with suppress(ConfigError):
                former = self._http
                self._connect_to(*self._locate())
                former.close()

    def stream(self, request: Mapping[str, Any], answer: ChatAnswer) -> Generator[Piece, None, None]:
        """Request a chat completion; feed `answer` and yield its pieces as they arrive.

        Closing the iterator closes the connection, which makes the lead cancel the request. Raises LeadError.
        """
        while True:
            try:
                yield from self._stream(request, answer)
            except RejectedError as error:
                if not self._adapt(error, request):
                    raise
            else:
                return

    def backs(self) -> list[BackReport] | None:
        """Return the connected backs; None when the server does not speculate. Raises LeadError."""
        response = self._get("/v1/speculation")
        if response.status_code in _NOT_SUPPORTED:
            return None
        self._check(response)
        try:
            return BacksReply.model_validate_json(response.content).backs
        except ValidationError:
            return None  # some servers have a page for every address

    def models(self) -> list[str]:
        """Return the names of the server's models that can chat. Raises LeadError."""
        response = self._get("/v1/models")
        self._check(response)
        with self._translated():
            listed = ModelsReply.model_validate_json(response.content).data
        return [model.id for model in listed if model.task not in _OTHER_TASKS]

    def _get(self, path: str) -> httpx.Response:
        """Send a GET request with a short timeout: servers answer it at once."""
        try:
            with self._translated():
                return self._http.get(path, timeout=min(GET_TIMEOUT_S, self._timeout_s))
        except RuntimeError as error:  # another thread has closed this httpx.Client
            raise UnreachableError("The connection to the lead's former address was closed.") from error

    def _stream(self, request: Mapping[str, Any], answer: ChatAnswer) -> Generator[Piece, None, None]:
        body = {**request, "stream": True, "stream_options": {"include_usage": True}}
        if self._model:
            body.setdefault("model", self._model)
        if self._asks_for_sources:
            body["return_speculation"] = True
        with self._translated(), self._answering(body) as source:
            self._check(source.response)
            for chunk in self._chunks(source):
                yield from answer.read(chunk)
        if answer.finish_reason is None:
            raise IncompleteAnswerError(
                f"The answer from {self.url} was cut short: the connection ended early."
            )

    @contextmanager
    def _answering(self, body: Mapping[str, Any]) -> Iterator[EventSource]:
        """Yield a response once it has begun; raises IncompleteAnswerError if the connection ends first."""
        with ExitStack() as stack:
            try:
                source = stack.enter_context(
                    connect_sse(self._http, "POST", "/v1/chat/completions", json=body)
                )
            except (httpx.ReadError, httpx.RemoteProtocolError) as error:
                was_plain = self.url.startswith("http:")
                why = HANGS_UP if was_plain else "the server was stopped, or the network failed"
                raise IncompleteAnswerError(f"There is no answer from {self.url}: {why}.") from error
            yield source

    def _adapt(self, refusal: RejectedError, request: Mapping[str, Any]) -> bool:
        """Return whether to try again with other fields: servers differ in the fields that they accept.

        Raises RejectedError.
        """
        if self._asks_for_sources and "return_speculation" in refusal.message:
            self._asks_for_sources = False
            return True
        if self._model or "model" in request or "model" not in refusal.message.lower():
            return False
        # Some servers require the name of a model even if they have only one.
        try:
            names = self.models()
        except LeadError:
            return False
        if len(names) > 1:
            advice = "The server has several models. Choose one with :model or --model."
            raise RejectedError(f"{refusal} ({advice})", refusal.status, refusal.message)
        self._model = next(iter(names), None)
        return self._model is not None

    def _chunks(self, source: EventSource) -> Iterator[Chunk]:
        answer = AnswerStream(source)
        for event in answer:
            if answer.done:  # some servers hang up without ending the response
                return
            chunk = Chunk.model_validate(event)
            if chunk.error is not None:
                raise IncompleteAnswerError(
                    f"{self.url} broke off its answer: {chunk.message or 'no reason given'}"
                )
            yield chunk

    def _check(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        response.read()
        message = _server_message(response)
        said = f"{self.url} answered {response.status_code}: {message}"
        if response.status_code in (httpx.codes.SERVICE_UNAVAILABLE, httpx.codes.TOO_MANY_REQUESTS):
            raise NotReadyError(said, _retry_after(response))
        if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            said += ". Set the server's key with --api-key-file or CHAT_API_KEY, or join again with --join"
        raise RejectedError(said, response.status_code, message)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate exceptions of httpx and pydantic within this context, most specific first."""
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if distrust := distrust_behind(error):
                raise UnreachableError(f"{self.url} is not trusted: {explain_distrust(distrust)}.") from error
            raise UnreachableError(
                f"There is no answer at {self.url} ({_reason(error)}). Start lead there, or set "
                "another address with --lead."
            ) from error
        except (SSEError, ValueError) as error:
            raise IncompleteAnswerError(
                f"{self.url} did not answer like an OpenAI-compatible server. Check --lead."
            ) from error
        except httpx.TimeoutException as error:
            raise IncompleteAnswerError(
                f"{self.url} stopped sending. The server hangs, or the network is down. (--timeout sets "
                "how long to wait.)"
            ) from error
        except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
            raise IncompleteAnswerError(
                f"The answer from {self.url} broke off because the server was stopped or the network failed."
            ) from error
        except httpx.HTTPError as error:
            raise IncompleteAnswerError(
                f"The answer from {self.url} broke off ({_reason(error)})."
            ) from error


def _may_use_proxy(url: httpx.URL) -> bool:
    """Return whether requests may use a proxy. Over HTTP a proxy could read the key, and no proxy reaches
    this machine or its own network.
    """
    return url.scheme == "https" and not _is_near(url.host)


def _is_near(host: str) -> bool:
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith(_HOME_DOMAINS)


def _reason(error: httpx.HTTPError) -> str:
    if is_plain(error):
        return SPEAKS_PLAIN
    said = str(error) or type(error).__name__
    return re.sub(r"^\[Errno -?\d+\] ", "", said)


def _server_message(response: httpx.Response) -> str:
    try:
        message = ErrorReply.model_validate_json(response.content).message
    except ValidationError:
        message = ""
    return message or response.text.strip()[:500] or response.reason_phrase


def _retry_after(response: httpx.Response) -> float | None:
    """Return the seconds in `Retry-After`; None if there is none, or if it is a date."""
    try:
        seconds = float(response.headers.get("Retry-After", ""))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
