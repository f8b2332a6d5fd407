"""Connects backs to a loaded model that has their vocabulary, or else to another loaded model.

A back knows one lead, and drafts for one model at a time. When another model becomes the better choice, the
back's connection is closed; the back connects again by itself.
"""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from typing import Any

from fastapi import WebSocket, WebSocketDisconnect
from starlette.requests import HTTPConnection
from starlette.types import Message
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from lead.http.client_gone import cancel, close_socket
from lead.router.model_host import ModelHost
from lead.router.model_process import ModelProcess
from shared.errors import ProtocolError
from shared.protocol import MAX_LEAD_MESSAGE_BYTES, Hello, parse_back_message

log = logging.getLogger("models")

_HELLO_SECONDS = 10.0
_CLOSE_SECONDS = 1.0
_MAX_PEERS = 1024
_POLICY, _RESTART = 1008, 1012  # RFC 6455, IANA
_NextMessage = asyncio.Future[Message]
"""The back's next message."""
_NOT_SENT_CODES = {1005, 1006, 1015}
"""RFC 6455: codes that no close frame has."""


@dataclass(eq=False, slots=True)
class _FollowedModel:
    """A connected back, with the vocabulary that it drafts in and the model that it follows."""

    socket: WebSocket
    vocabulary: str
    model: str


class BackRelay:
    """Forwards the connections of backs to the models that they draft for."""

    def __init__(self, host: ModelHost) -> None:
        self._host = host
        self._links: set[_FollowedModel] = set()
        self._of_peers: dict[str, str] = {}
        """The model that each peer was last connected to."""
        self._changed = asyncio.Event()
        self._moving: set[asyncio.Future[None]] = set()

    def model_for(self, connection: HTTPConnection) -> str | None:
        """Return the name of the model for a back that uses plain HTTP, where its vocabulary is unknown.

        It is the model that a back with the same key and address last had a WebSocket to, if it is still
        loaded. Otherwise it is the loaded model with the fewest WebSockets; of several, the most recently
        used one. None: no loaded model can have drafts.
        """
        name = self._of_peers.get(_peer(connection), "")
        if name in self._host.models and self._host.process(name):
            return name
        return self._best("")

    def note_change(self) -> None:
        """Handle a change of the loaded models: disconnect backs that should follow another model."""
        self._changed.set()
        self._changed = asyncio.Event()
        for link in list(self._links):
            others = self._links - {link}
            best = self._best(link.vocabulary, others)
            if best not in {None, link.model} and not self._speaks(link.model, link.vocabulary):
                moving = asyncio.ensure_future(
                    close_socket(link.socket, _RESTART, f"the back must draft for {best} now")
                )
                self._moving.add(moving)
                moving.add_done_callback(self._moving.discard)

    async def follow(self, socket: WebSocket) -> None:
        """Serve a back from its hello to the end of its connection; wait for a model if none is loaded."""
        await socket.accept()
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                text = await socket.receive_text()
            hello = _read_hello(text)
        except (WebSocketDisconnect, TimeoutError, KeyError):
            await close_socket(socket, _POLICY, "no hello message arrived")
            return
        except ProtocolError as error:
            await close_socket(socket, _POLICY, str(error))
            return
        first = asyncio.ensure_future(socket.receive())
        try:
            name = await self._wait_for_model(hello, first)
            if name and (process := self._host.process(name)):
                await self._serve(
                    _FollowedModel(socket, hello.vocabulary.fingerprint, name), process, text, first
                )
            else:
                await close_socket(socket, _RESTART, "no model is in memory yet")
        finally:
            await cancel(first)

    async def _wait_for_model(self, hello: Hello, first: _NextMessage) -> str | None:
        """Wait for a model and return its name; None if the back has left, or sends a message meanwhile."""
        while (name := self._best(hello.vocabulary.fingerprint)) is None:
            change: asyncio.Future[Any] = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait([change, first], return_when=asyncio.FIRST_COMPLETED)
            change.cancel()
            if first.done():
                return None
        return name

    async def _serve(
        self, link: _FollowedModel, process: ModelProcess, hello: str, first: _NextMessage
    ) -> None:
        peers = self._of_peers
        peers.pop(_peer(link.socket), None)
        peers[_peer(link.socket)] = link.model
        while len(peers) > _MAX_PEERS:
            del peers[next(iter(peers))]
        self._links.add(link)
        try:
            async with connect(
                f"ws{process.url.removeprefix('http')}/v1/speculation",
                additional_headers=dict(process.headers_for(link.socket)),
                max_size=MAX_LEAD_MESSAGE_BYTES,
                compression=None,
                ping_interval=None,
                close_timeout=_CLOSE_SECONDS,
                proxy=None,
            ) as model:
                await model.send(hello)
                await self._pass_on(link.socket, model, first)
            code, reason = model.close_code or _RESTART, model.close_reason or ""
            await close_socket(link.socket, _RESTART if code in _NOT_SENT_CODES else code, reason)
        except (OSError, InvalidHandshake, ConnectionClosed) as error:
            await close_socket(link.socket, _RESTART, str(error))
        finally:
            self._links.discard(link)

    async def _pass_on(self, socket: WebSocket, model: ClientConnection, first: _NextMessage) -> None:
        """Forward messages until either side ends the connection."""

        async def forth() -> None:
            message = await first
            while message["type"] == "websocket.receive":
                await model.send(message.get("text") or message.get("bytes") or b"")
                message = await socket.receive()

        async def back() -> None:
            async for text in model:
                await (socket.send_text(text) if isinstance(text, str) else socket.send_bytes(text))

        tasks = [asyncio.ensure_future(forth()), asyncio.ensure_future(back())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel(*tasks)

    def _best(self, vocabulary: str, links: "set[_FollowedModel] | None" = None) -> str | None:
        """Return the model for a back. Models with its vocabulary come first, then those with the fewest
        backs, then the last used.
        """
        n_backs = Counter(link.model for link in (self._links if links is None else links))
        awake = [model.name for model in self._host.pool.awake() if self._may_follow(model.name)]
        ranked = sorted(awake, key=lambda name: (not self._speaks(name, vocabulary), n_backs[name]))
        return next(iter(ranked), None)

    def _may_follow(self, name: str) -> bool:
        """Return whether a back can draft for the model; False for a model that computes embeddings."""
        process = self._host.process(name)
        return process is None or bool(process.about.vocabulary)

    def _speaks(self, name: str, vocabulary: str) -> bool:
        process = self._host.process(name)
        return process is not None and process.about.vocabulary == vocabulary


def _read_hello(text: str) -> Hello:
    """Parse a hello; raises ProtocolError."""
    message = parse_back_message(text)
    if not isinstance(message, Hello):
        raise ProtocolError("the first message must be hello")
    return message


def _peer(connection: HTTPConnection) -> str:
    host = connection.client.host if connection.client else "unknown"
    return f"{connection.state.principal} at {host}"
