"""A lead that answers from a script, and a screen that keeps all output, for the tests of chat."""

import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import httpx

from chat.client import LeadClient
from chat.conversation import ChatConversation, SavedConversations
from chat.render import Screen
from chat.repl import Repl
from chat.session import Session as ChatSession
from chat.streaming import AnswerStreamer

URL = "http://lead:5555"

Reply = Callable[[httpx.Request], httpx.Response]


class Terminal(io.StringIO):
    def isatty(self):
        return True


class ScriptedLines:
    """A person's input: strings, and exceptions for keys."""

    def __init__(self, screen: io.StringIO, lines: Iterable[str | type[BaseException]]):
        self._screen = screen
        self._lines = iter(lines)
        self.drafts: list[str] = []

    def read(self, draft=""):
        line = next(self._lines, EOFError)
        self._screen.write("> ")
        self.drafts.append(draft)
        if isinstance(line, str):
            self._screen.write(f"{line}\n")
            return line
        self._screen.write("^C\n" if line is KeyboardInterrupt else "^D\n")
        raise line


class Stream(httpx.SyncByteStream):
    """The body of an answer: bytes, and exceptions that are raised while it is read."""

    def __init__(self, parts: Iterable[bytes | BaseException]):
        self._parts = list(parts)
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            if isinstance(part, BaseException):
                raise part
            yield part

    def close(self):
        self.closed = True


class FakeLead:
    """Answers each request with the next reply of its script and keeps the requests.

    Requests for other things than answers get the entry of `places` for their path.
    """

    def __init__(self, *replies: Reply, places: dict[str, object] | None = None):
        self.replies = list(replies)
        self.places = places or {}
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET" and (place := self.places.get(request.url.path)):
            return place(request) if callable(place) else httpx.Response(200, json=place)
        if request.method == "GET" and request.url.path == "/v1/models":
            return httpx.Response(404)
        self.requests.append(request)
        return self.replies.pop(0)(request)

    @property
    def bodies(self):
        return [json.loads(request.content) for request in self.requests]

    def messages(self, index=-1):
        return [(message["role"], message["content"]) for message in self.bodies[index]["messages"]]

    def client(self, url=URL, **options):
        return LeadClient(url, timeout_s=5, transport=httpx.MockTransport(self), **options)


def event(data) -> bytes:
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def text_event(*tokens: str | tuple[str, str], n_drafted=0) -> bytes:
    """A chunk of the lead's answer: plain tokens, and (text, source) for drafted tokens."""
    pairs = [(token, None) if isinstance(token, str) else token for token in tokens]
    return event(
        {
            "choices": [{"index": 0, "delta": {"content": "".join(text for text, _ in pairs)}}],
            "speculation": {
                "tokens": [{"text": text, "source": source} for text, source in pairs],
                "n_drafted": n_drafted,
                "n_accepted": sum(source is not None for _, source in pairs),
            },
        }
    )


def end_events(n_tokens=2, n_drafted=0, n_accepted=0, reason="stop", rate=10.0) -> list[bytes]:
    """The end of the lead's answer, at `rate` tokens a second."""
    timings = {
        "cache_n": 3,
        "prompt_n": 7,
        "prompt_ms": 250.0,
        "predicted_n": n_tokens,
        "predicted_ms": n_tokens * 1000 / rate,
        "predicted_per_second": rate,
        "draft_n": n_drafted,
        "draft_n_accepted": n_accepted,
    }
    return [
        event(
            {
                "choices": [{"delta": {}, "finish_reason": reason}],
                "timings": timings,
                "seed": 42,
                "usage": None,
            }
        ),
        event({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": n_tokens}}),
        event("[DONE]"),
    ]


def streams(*parts: bytes | BaseException) -> Reply:
    return lambda _: httpx.Response(
        200, headers={"content-type": "text/event-stream"}, stream=Stream([b": ping\n\n", *parts])
    )


def answers(*tokens: str | tuple[str, str]) -> Reply:
    n_accepted = sum(isinstance(token, tuple) for token in tokens)
    return streams(
        *(text_event(token) for token in tokens), *end_events(len(tokens), 2 * n_accepted, n_accepted)
    )


def refuses(status: int, message: str, headers: dict[str, str] | None = None) -> Reply:
    return lambda _: httpx.Response(status, headers=headers, json={"error": {"message": message}})


def is_away(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("Connection refused", request=request)


class Session:
    """A session at a terminal without color: typed lines, scripted replies, and the screen as text."""

    def __init__(
        self,
        *replies: Reply,
        environment=None,
        conversation=None,
        terminal=io.StringIO,
        folder=None,
        places=None,
    ):
        self.lead = FakeLead(*replies, places=places)
        self.screen = terminal()
        self.sleeps: list[float] = []
        self.conversation = conversation or ChatConversation()
        self._environment = environment or {}
        self._store = SavedConversations(folder or Path("/nowhere"))

    def type(self, *lines: str | type[BaseException], sleep=None, **options) -> str:
        """The screen from the first prompt on. `options`: of the client."""
        screen = self.new_screen()
        typed = ScriptedLines(self.screen, lines)
        with self.lead.client(**options) as client:
            session = new_session(
                client, self.conversation, screen, interactive=True, sleep=sleep or self.sleeps.append
            )
            Repl(client, session, screen, self._store, interactive=True).run(typed)
        self.conversation = session.conversation
        self.n_failed = session.n_failed
        self.drafts = typed.drafts
        return self.screen.getvalue().partition("leaves.\n")[2]

    def new_screen(self):
        return Screen(self.screen, self.screen, self._environment, with_summary=True)


def new_session(client, conversation, screen, *, interactive, sleep):
    streamer = AnswerStreamer(
        client, screen, wait_until_reachable=interactive, clock=lambda: 0.0, sleep=sleep
    )
    return ChatSession(streamer, conversation, screen, interactive=interactive, draw_seed=lambda: 99)
