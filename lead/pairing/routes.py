"""Inviting machines: `lead invite` and the page ask for codes; `back --join` and `chat --join` use them."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Base64UrlBytes, Field
from starlette.exceptions import HTTPException

from lead.chat.fields import AtMost, NullIsDefault
from lead.http.json_route import JsonRoute
from lead.http.middleware.auth import own_keys
from lead.pairing.door import Door
from lead.pairing.members import INVITATION_SECONDS, NotInvitedError
from shared.errors import ConfigError, RequestError, UnavailableError
from shared.pairing.invitation import MemberRole

router = APIRouter(route_class=JsonRoute)

_Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,253}$")]


def get_door(request: Request) -> Door:
    """Raises RequestError where nobody can be invited."""
    door: Door | None = getattr(request.app.state, "door", None)
    if door is None:
        raise RequestError("this lead cannot invite machines")
    return door


class InvitationRequest(NullIsDefault):
    """role: of the machine that joins. open: let machines in from now on.

    addresses: hosts, instead of this machine's.

    nearby: a shorter code without addresses, for a machine that finds this one on the local network.
    """

    role: MemberRole
    open: bool = False
    nearby: bool = False
    addresses: Annotated[list[_Host], AtMost(4)] = []  # noqa: RUF012 - of a pydantic model


@router.post("/v1/invitations")
async def invite(body: InvitationRequest, door: Annotated[Door, Depends(get_door)]) -> dict[str, Any]:
    """A code for one machine; `qr` are the rows of its QR code, 1 for dark modules."""
    import segno  # noqa: PLC0415 - only who invites needs it

    if body.open:
        try:
            door.open()
        except ConfigError as error:
            raise RequestError(str(error), "open") from error
    if not door.is_open:
        raise RequestError(
            "only this machine reaches this lead so far: `lead invite --open` lets invited ones in", "open"
        )
    if body.nearby:
        try:
            await door.announce()
        except ConfigError as error:
            raise RequestError(str(error), "nearby") from error
    invitation = door.invite(body.role, body.addresses, nearby=body.nearby)
    code = invitation.code()
    return {
        "code": code,
        "role": body.role,
        "seconds": INVITATION_SECONDS,
        "addresses": invitation.addresses,
        "qr": ["".join(map(str, row)) for row in segno.make(code, micro=False).matrix],
    }


@router.delete("/v1/invitations")
async def close(door: Annotated[Door, Depends(get_door)]) -> dict[str, Any]:
    """Let nobody in any more."""
    door.close()
    return {"open": False}


@router.get("/v1/members")
async def members(door: Annotated[Door, Depends(get_door)]) -> dict[str, Any]:
    """Who has joined; codes that can still be used, and attempts with wrong ones."""
    return {
        "open": door.is_open,
        "addresses": door.addresses() if door.is_open else (),
        "members": [
            {"name": each.name, "role": each.role.value, "joined_at": int(each.joined_at)}
            for each in door.members
        ],
        "invited": door.members.n_invited,
        "refused": door.members.n_refused,
    }


@router.delete("/v1/members")
async def revoke(
    name: Annotated[str, Query(max_length=64)], door: Annotated[Door, Depends(get_door)]
) -> dict[str, Any]:
    """A member's key is worth nothing any more, and its connections are cut."""
    if not door.revoke(name):
        raise RequestError(f"no member is called {name!r}", "name")
    return {"revoked": name}


class _JoinRoute(JsonRoute):
    """Nothing is read of a machine that comes in elsewhere, or tries too often: it needs no key."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_admitted(request: Request) -> Response:
            door = get_door(request)
            if own_keys(request.scope) is None:
                raise RequestError("codes are used where invited machines come in")
            door.members.admit(_peer(request))
            return await handle(request)

        return handle_admitted


class JoinRequest(NullIsDefault):
    """`secret`: of a code. `name`: as the machine calls itself."""

    secret: Base64UrlBytes
    name: Annotated[str, Field(min_length=1, max_length=64)]


_joining = APIRouter(route_class=_JoinRoute)


@_joining.post("/v1/join")
async def join(
    body: JoinRequest, request: Request, door: Annotated[Door, Depends(get_door)]
) -> dict[str, Any]:
    """The key of a new member, which has the role for which the code was made."""
    try:
        member, key = door.join(body.secret, body.name, _peer(request))
    except NotInvitedError as error:
        raise HTTPException(403, str(error)) from error
    except ConfigError as error:
        raise UnavailableError(str(error)) from error
    return {"name": member.name, "role": member.role.value, "key": key}


def _peer(request: Request) -> str:
    return request.client.host if request.client else "unknown"


router.include_router(_joining)
