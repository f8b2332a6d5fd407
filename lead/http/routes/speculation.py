"""`/v1/speculation`: a WebSocket route and a POST route for backs, and a report for people."""

import asyncio
import contextlib
import logging
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Query, Request, WebSocket, WebSocketDisconnect
from pydantic import Field
from starlette.requests import HTTPConnection

from lead.backs.back import Back
from lead.backs.registry import Backs
from lead.chat_format.fields import NullIsDefault
from lead.engine.commands import PolicyName
from lead.engine.speculation.constants import MAX_DEPTH
from lead.http.client_gone import cancel_on_disconnect, close_socket
from lead.http.json_route import JsonRoute
from lead.http.services import Services, get_ready_services, get_services
from lead.settings.host_names import is_loopback
from lead.settings.keys import Principal
from shared import cpus
from shared.errors import ProtocolError, UnavailableError, VocabularyError
from shared.protocol import (
    MAX_BACK_MESSAGE_BYTES,
    PROTOCOL_VERSION,
    Hello,
    LeadMessage,
    Post,
    Refused,
    Reply,
    VocabularyId,
    parse_back_message,
)
from shared.version import VERSION

log = logging.getLogger("lead.backs")

router = APIRouter(route_class=JsonRoute)

HELLO_SECONDS = 10.0
"""A peer that sends no hello within this time is disconnected."""
MAX_WAIT_SECONDS = 60.0

_CLOSE_GONE = 1006  # RFC 6455: closed without a word
_CLOSED_FOR_FRAMES = {1002, 1007, 1008, 1009}  # RFC 6455: the server has read invalid or too large frames
_CLOSE_POLICY = 1008  # RFC 6455: "a message that violates its policy"
_CLOSE_TRY_AGAIN = 1013  # IANA: "Try Again Later"


@router.get("/v1/speculation")
async def describe(services: Annotated[Services, Depends(get_services)]) -> dict[str, Any]:
    """Return the connected backs with statistics of their drafts, and the planner's report."""
    return {
        "lead": await _about(services),
        "backs": services.backs.describe(),
        "totals": services.backs.totals(),
        "planner": await services.explain(),
    }


async def _about(services: Services) -> dict[str, Any]:
    """Return data about the lead: `back doctor` compares it with the back, and backs need it for a hello."""
    ready = services.engine.ready
    return {
        "version": VERSION,
        "protocol": PROTOCOL_VERSION,
        "model": services.alias,
        "vocabulary": (await services.vocabulary.identify()).model_dump(),
        "speculates": ready.speculates if ready else None,
        "exact": ready.exactness.is_on if ready else None,
        "promise": ready.exactness.guarantee if ready else "",
        "devices": ready.devices if ready else "",
        "cores": sorted(cpus.usable()),
        "n_threads": services.settings.n_threads,
    }


class PolicyRequest(NullIsDefault):
    """A change of the policy for the depth of drafts. depth: only for the policies `fixed` and `sync`."""

    policy: PolicyName
    depth: Annotated[int, Field(ge=0, le=MAX_DEPTH)] = 4


@router.put("/v1/speculation")
async def set_policy(
    body: PolicyRequest, services: Annotated[Services, Depends(get_ready_services)]
) -> dict[str, Any]:
    """Change the policy while running, for instance to measure the effect of speculation."""
    services.engine.set_policy(body.policy, body.depth)
    return {"policy": body.policy, "depth": body.depth}


@router.post("/v1/speculation")
async def exchange(
    body: Post,
    request: Request,
    services: Annotated[Services, Depends(get_ready_services)],
    wait: Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, allow_inf_nan=False)] = 0.0,
) -> Reply:
    """Take drafts from a back and return updates for it; wait up to `wait` seconds for an update."""
    n_bytes = len(await request.body())
    ours = await services.vocabulary.identify()
    back, answers = _take_post(body, services.backs, ours, _sender_of(request), n_bytes)
    if back is None:
        return Reply(messages=answers)
    updates = await cancel_on_disconnect(request, _updates_within(back, services, 0.0 if answers else wait))
    return Reply(messages=[*answers, *updates], number=back.number_reply())


@router.websocket("/v1/speculation")
async def follow(socket: WebSocket) -> None:
    """Exchange messages with a back until either side ends the connection.

    After hello and welcome, drafts arrive and updates are sent.
    """
    services: Services | None = socket.app.state.services
    await socket.accept()
    if services is None or services.engine.ready is None:
        await close_socket(socket, _CLOSE_TRY_AGAIN, "the lead is loading its model")
        return
    sender = _sender_of(socket)
    try:
        services.backs.admit(sender.peer)
    except UnavailableError as error:
        log.debug("%s was refused: %s", sender.peer, error)  # not a warning: it may try again any time
        await _refuse(socket, services.backs, str(error))
        return
    try:
        back = await _welcome(socket, services, sender)
    except ProtocolError as error:
        # A back with another vocabulary joins again and translates.
        level = logging.DEBUG if isinstance(error, VocabularyError) else logging.WARNING
        log.log(level, "a back was refused: %s", error)
        with contextlib.suppress(WebSocketDisconnect):
            await _send(socket, _refused(error))
        await close_socket(socket, _CLOSE_POLICY)
        return
    except (UnavailableError, TimeoutError) as error:
        reason = str(error) or "no hello message arrived"
        log.warning("a back was refused for now: %s", reason)
        await _refuse(socket, services.backs, reason)
        return
    except WebSocketDisconnect:
        return
    try:
        await _serve(socket, back, services)
    finally:
        services.backs.leave(back)


class _Sender(NamedTuple):
    """The sender of drafts. peer: its key and address, which identify it. is_local: it is on this machine.
    member: the name under which it joined, if it did.
    """

    peer: str
    is_local: bool
    member: str | None = None

    def named(self, hello: Hello) -> Hello:
        """Return `hello` with a name that begins with the sender's name for `lead invite --revoke`."""
        if self.member in {None, hello.name}:
            return hello
        return hello.model_copy(update={"name": f"{self.member}:{hello.name}"})


def _sender_of(connection: HTTPConnection) -> _Sender:
    host = connection.client.host if connection.client else "unknown"
    # A sender whose address is the address that it connects to is on this machine, too.
    is_local = is_loopback(host) or host == (connection.scope.get("server") or (None,))[0]
    principal: Principal | None = getattr(connection.state, "principal", None)
    return _Sender(f"{principal or 'anyone'} at {host}", is_local, principal.member if principal else None)


async def _welcome(socket: WebSocket, services: Services, sender: _Sender) -> Back:
    async with asyncio.timeout(HELLO_SECONDS):
        hello = parse_back_message(await _receive_text(socket))
    if not isinstance(hello, Hello):
        raise ProtocolError("the first message must be hello")
    ours = await services.vocabulary.identify()
    back, welcome = services.backs.join(
        sender.named(hello), ours, "websocket", sender.peer, is_local=sender.is_local
    )
    try:
        await _send(socket, welcome)
    except BaseException:
        services.backs.leave(back)
        raise
    return back


async def _serve(socket: WebSocket, back: Back, services: Services) -> None:
    sending = asyncio.ensure_future(_send_updates(socket, back, services))
    receiving = asyncio.ensure_future(_receive_drafts(socket, back, services.backs))
    try:
        await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        sending.cancel()
        receiving.cancel()
        results = await asyncio.gather(sending, receiving, return_exceptions=True)
    for error in results:
        if isinstance(error, ProtocolError):
            services.backs.expel(back, str(error))
            await close_socket(socket, _CLOSE_POLICY, str(error))
        elif isinstance(error, WebSocketDisconnect):
            if error.code in _CLOSED_FOR_FRAMES:
                services.backs.expel(back, f"invalid or too large frames (code {error.code})")
        elif isinstance(error, Exception):
            raise error


async def _send_updates(socket: WebSocket, back: Back, services: Services) -> None:
    """Send updates. A back that does not read blocks only this task, until its pings fail."""
    while True:
        change = back.changed.next_change()
        for message in services.backs.updates(back):
            await _send(socket, message)
        await change.wait()


async def _receive_drafts(socket: WebSocket, back: Back, backs: Backs) -> None:
    while True:
        text = await _receive_text(socket)
        if seconds := backs.pause(back):
            await asyncio.sleep(seconds)
        if not backs.may_send(back, len(text)):
            continue  # not even parsed
        message = parse_back_message(text)
        if isinstance(message, Hello):
            raise ProtocolError("hello may be sent only once")
        backs.take_draft(back, message)


async def _refuse(socket: WebSocket, backs: Backs, reason: str) -> None:
    """Close the connection after a delay, which slows down peers that try again at once."""
    with backs.join_limits.held_refusal() as seconds:
        await asyncio.sleep(seconds)
    await close_socket(socket, _CLOSE_TRY_AGAIN, reason)


async def _send(socket: WebSocket, message: LeadMessage) -> None:
    text = message.model_dump_json()
    try:
        await socket.send_text(text)
    except RuntimeError as error:  # Starlette's and uvicorn's answer after the end
        raise WebSocketDisconnect(_CLOSE_GONE) from error


async def _receive_text(socket: WebSocket) -> str:
    try:
        text = await socket.receive_text()
    except KeyError as error:  # Starlette's answer to a binary frame
        raise ProtocolError("messages must be text frames") from error
    except RuntimeError as error:
        raise WebSocketDisconnect(_CLOSE_GONE) from error
    if len(text) > MAX_BACK_MESSAGE_BYTES:
        raise ProtocolError(f"a message has more than {MAX_BACK_MESSAGE_BYTES} bytes")
    return text


def _take_post(
    body: Post, backs: Backs, ours: VocabularyId, sender: _Sender, n_bytes: int
) -> tuple[Back | None, list[LeadMessage]]:
    """Return the back that posts (None: unknown or refused), and the answers to its messages.

    For the back's limits, each message has an equal share of `n_bytes`, the size of the body.
    """
    back = backs.get(body.back) if body.back else None
    if back:
        back.acknowledge(body.heard)
    answers: list[LeadMessage] = []
    for message in body.messages:
        if isinstance(message, Hello):
            if back:
                raise ProtocolError("hello may be sent only once")
            backs.admit(sender.peer)
            try:
                hello = sender.named(message)
                back, welcome = backs.join(hello, ours, "http", sender.peer, is_local=sender.is_local)
            except ProtocolError as error:
                return None, [_refused(error)]
            answers.append(welcome)
        elif back:
            try:
                if backs.may_send(back, n_bytes / len(body.messages)):
                    backs.take_draft(back, message)
            except ProtocolError as error:
                backs.expel(back, str(error))
                raise
    if back is None:
        return None, [Refused(reason="this back id is unknown or has expired. Send hello first")]
    return back, answers


def _refused(error: ProtocolError) -> Refused:
    return Refused(reason=str(error), code="vocabulary" if isinstance(error, VocabularyError) else None)


async def _updates_within(back: Back, services: Services, seconds: float) -> list[LeadMessage]:
    try:
        async with asyncio.timeout(seconds):
            while services.backs.is_connected(back):
                change = back.changed.next_change()
                if updates := services.backs.updates(back):
                    return updates
                await change.wait()
    except TimeoutError:
        pass
    return []
