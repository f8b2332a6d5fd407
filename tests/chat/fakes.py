"""A lead that answers from a script, and a screen that keeps what was shown: all that chat's tests need."""

import io
import json
from collections.abc import Callable, Iterable, Iterator

import httpx

from chat.client import LeadClient
from chat.conversation import Conversation
from chat.render import Screen
from chat.repl import Repl

URL = "http://lead:5555"

Reply = Callable[[httpx.Request], httpx.Response]


class Terminal(io.StringIO):
    def isatty(self):
        return True


class ScriptedLines:
    """What a person types: strings, exceptions for keys."""

    def __init__(self, screen: io.StringIO, lines: Iterable[str | type[BaseException]]):
        self._screen = screen
        self._lines = iter(lines)

    def read(self):
        line = next(self._lines, EOFError)
        self._screen.write("> ")
        if isinstance(line, str):
            self._screen.write(f"{line}\n")
            return line
        self._screen.write("^C\n" if line is KeyboardInterrupt else "^D\n")
        raise line


class Stream(httpx.SyncByteStream):
    """The body of an answer: bytes, and exceptions for what happens while it is read."""

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
    """Answers each request with the next reply of its script and keeps the requests."""

    def __init__(self, *replies: Reply):
        self.replies = list(replies)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
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
    """A chunk of lead's: plain tokens, and (text, source) for drafted ones."""
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


def end_events(n_tokens=2, n_drafted=0, n_accepted=0, reason="stop") -> list[bytes]:
    """The end of one of lead's answers, at ten tokens a second."""
    timings = {
        "cache_n": 3,
        "prompt_n": 7,
        "prompt_ms": 250.0,
        "predicted_n": n_tokens,
        "predicted_ms": n_tokens * 100.0,
        "predicted_per_second": 10.0,
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
    """A whole session at a terminal without colour: lines typed, replies scripted, the screen as text."""

    def __init__(self, *replies: Reply, environment=None, conversation=None, terminal=io.StringIO):
        self.lead = FakeLead(*replies)
        self.screen = terminal()
        self.sleeps: list[float] = []
        self.conversation = conversation or Conversation()
        self._environment = environment or {}

    def type(self, *lines: str | type[BaseException], sleep=None) -> str:
        """The screen from the first prompt on."""
        with self.lead.client() as client:
            repl = Repl(
                client,
                self.conversation,
                Screen(self.screen, self.screen, self._environment),
                interactive=True,
                sleep=sleep or self.sleeps.append,
            )
            repl.run(ScriptedLines(self.screen, lines))
        self.n_failed = repl.n_failed
        return self.screen.getvalue().partition("leaves.\n")[2]
