"""A back at a WebSocket of the lead's application, without a network."""

import asyncio
from typing import Any

from bench.fuzzing.tally import Tally
from bench.hostile import KnownSequences
from shared.protocol import Tune, Welcome, parse_lead_message

PATH = "/v1/speculation"


class BackConnection:
    """Notes what the lead says: whether it is welcome, and how many tokens of which sequences it knows."""

    def __init__(self, app: Any, tally: Tally) -> None:
        self.inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.inbox.put_nowait({"type": "websocket.connect"})
        self.is_open = True
        self.is_welcome = False
        self.known = KnownSequences()
        self._tally = tally
        scope = {
            "type": "websocket",
            "path": PATH,
            "raw_path": PATH.encode(),
            "query_string": b"",
            "headers": [(b"host", b"lead")],
            "client": ("10.0.0.1", 1),
            "subprotocols": [],
        }
        self.task = asyncio.ensure_future(app(scope, self.inbox.get, self._on_sent))

    def send(self, frame: str | bytes) -> None:
        """One frame of the back."""
        kind = "text" if isinstance(frame, str) else "bytes"
        self.inbox.put_nowait({"type": "websocket.receive", kind: frame})

    def hang_up(self, code: int = 1006) -> None:
        """The connection ends."""
        self.is_open = False
        self.inbox.put_nowait({"type": "websocket.disconnect", "code": code})

    async def _on_sent(self, message: dict[str, Any]) -> None:
        if message["type"] == "websocket.close":
            self._tally.counts[f"closed with {message['code']}"] += 1
            self.hang_up(message["code"])
        elif message["type"] == "websocket.send":
            self._follow(message["text"])

    def _follow(self, text: str) -> None:
        match parse_lead_message(text):
            case Welcome():
                self.is_welcome = True
            case Tune():
                self._tally.counts["tuned"] += 1
            case message:
                self.known.follow(message)
