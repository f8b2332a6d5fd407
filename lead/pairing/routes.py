"""The routes of pairing: `lead invite` and the page request codes; `back --join` and `chat --join`
use them.
"""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Base64UrlBytes, Field
from starlette.exceptions import HTTPException

from lead.chat_format.fields import AtMost, NullIsDefault
from lead.http.json_route import JsonRoute
from lead.http.middleware.auth import own_keys
from lead.pairing.members import INVITATION_SECONDS, NotInvitedError
from lead.pairing.pairing_server import PairingServer
from shared.errors import ConfigError, RequestError, UnavailableError
from shared.pairing.invitation import MemberRole

router = APIRouter(route_class=JsonRoute)

_Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,253}$")]


def get_pairing_server(request: Request) -> PairingServer:
    """Return the lead's pairing server; raises RequestError if there is none."""
    pairing: PairingServer | None = getattr(request.app.state, "pairing", None)
    if pairing is None:
        raise RequestError("this lead cannot invite machines")
    return pairing


class InvitationRequest(NullIsDefault):
    """A request for a code.

    role: of the machine that joins. open: accept machines from now on. addresses: hosts, instead of this
    machine's. nearby: a shorter code without addresses, for a machine that finds this one on the local
    network.
    """

    role: MemberRole
    open: bool = False
    nearby: bool = False
    addresses: Annotated[list[_Host], AtMost(4)] = []  # noqa: RUF012 - of a pydantic model


@router.post("/v1/invitations")
async def invite(
    body: InvitationRequest, pairing: Annotated[PairingServer, Depends(get_pairing_server)]
) -> dict[str, Any]:
    """Return a code for one machine; `qr` are the rows of its QR code, 1 for dark modules."""
    import segno  # noqa: PLC0415 - only who invites needs it

    if body.open:
        try:
            pairing.open()
        except ConfigError as error:
            raise RequestError(str(error), "open") from error
    if not pairing.is_open:
        raise RequestError(
            "only this machine reaches this lead so far: `lead invite --open` lets invited ones in", "open"
        )
    if body.nearby:
        try:
            await pairing.announce()
        except ConfigError as error:
            raise RequestError(str(error), "nearby") from error
    invitation = pairing.invite(body.role, body.addresses, nearby=body.nearby)
    code = invitation.code()
    return {
        "code": code,
        "role": body.role,
        "seconds": INVITATION_SECONDS,
        "addresses": invitation.addresses,
        "qr": ["".join(map(str, row)) for row in segno.make(code, micro=False).matrix],
    }


@router.delete("/v1/invitations")
async def close(pairing: Annotated[PairingServer, Depends(get_pairing_server)]) -> dict[str, Any]:
    """Stop accepting machines."""
    pairing.close()
    return {"open": False}


@router.get("/v1/members")
async def members(pairing: Annotated[PairingServer, Depends(get_pairing_server)]) -> dict[str, Any]:
    """Return the members; the number of open codes, and of attempts with wrong ones."""
    return {
        "open": pairing.is_open,
        "addresses": pairing.addresses() if pairing.is_open else (),
        "members": [
            {"name": each.name, "role": each.role.value, "joined_at": int(each.joined_at)}
            for each in pairing.members
        ],
        "invited": pairing.members.n_invited,
        "refused": pairing.members.n_refused,
    }


@router.delete("/v1/members")
async def revoke(
    name: Annotated[str, Query(max_length=64)],
    pairing: Annotated[PairingServer, Depends(get_pairing_server)],
) -> dict[str, Any]:
    """Revoke a member's key, and close its connections."""
    if not pairing.revoke(name):
        raise RequestError(f"no member is called {name!r}", "name")
    return {"revoked": name}


class _JoinRoute(JsonRoute):
    """Admits a machine by its address before its body is read, because it needs no key."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_admitted(request: Request) -> Response:
            pairing = get_pairing_server(request)
            if own_keys(request.scope) is None:
                raise RequestError("codes are used where invited machines come in")
            pairing.members.admit(_peer(request))
            return await handle(request)

        return handle_admitted


class JoinRequest(NullIsDefault):
    """A request to join. secret: of a code. name: the machine's name for itself."""

    secret: Base64UrlBytes
    name: Annotated[str, Field(min_length=1, max_length=64)]


_joining = APIRouter(route_class=_JoinRoute)


@_joining.post("/v1/join")
async def join(
    body: JoinRequest, request: Request, pairing: Annotated[PairingServer, Depends(get_pairing_server)]
) -> dict[str, Any]:
    """Return the key of a new member, with the role for which the code was made."""
    try:
        member, key = pairing.join(body.secret, body.name, _peer(request))
    except NotInvitedError as error:
        raise HTTPException(403, str(error)) from error
    except ConfigError as error:
        raise UnavailableError(str(error)) from error
    return {"name": member.name, "role": member.role.value, "key": key}


def _peer(request: Request) -> str:
    return request.client.host if request.client else "unknown"


router.include_router(_joining)
