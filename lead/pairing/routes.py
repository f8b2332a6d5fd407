"""The routes of pairing: `lead invite` and the page request codes; `back --join` and `chat --join`
use them.
"""

import base64
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import AfterValidator, Base64UrlBytes, Field
from starlette.exceptions import HTTPException

from lead.chat_format.fields import AtMost, NullIsDefault
from lead.http.json_route import JsonRoute
from lead.http.middleware.auth import own_keys
from lead.pairing.app_lines import shown_fingerprint
from lead.pairing.members import INVITATION_SECONDS, NotInvitedError
from lead.pairing.pairing_server import PairingServer
from shared.errors import ConfigError, RequestError, UnavailableError
from shared.pairing.discovery import with_port
from shared.pairing.invitation import Invitation, MemberRole
from shared.pairing.joined_lead import AUTHORITY_PATH

router = APIRouter(route_class=JsonRoute)

T = TypeVar("T")

_MemberName = Annotated[str, Field(min_length=1, max_length=64)]


def _check_host(host: str) -> str:
    with_port(host, 1)
    return host


_HostAndPort = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:\[\]-]{1,262}$"), AfterValidator(_check_host)]
"""A name or an address, with or without a port."""


def get_pairing_server(request: Request) -> PairingServer:
    """Return the lead's pairing server; raises RequestError if there is none."""
    pairing: PairingServer | None = getattr(request.app.state, "pairing", None)
    if pairing is None:
        raise RequestError("invitations are off. Read the lead's log")
    return pairing


class OpenRequest(NullIsDefault):
    """A request that may open the lead. open: accept machines from now on. addresses: hosts to use instead of
    this machine's.
    """

    open: bool = False
    addresses: Annotated[list[_HostAndPort], AtMost(4)] = []  # noqa: RUF012 - of a pydantic model


class InvitationRequest(OpenRequest):
    """A request for a code. role: the role of the machine that joins.

    nearby: a shorter code without addresses, for a machine that finds this one on the local network.
    """

    role: MemberRole
    nearby: bool = False


class AppRequest(OpenRequest):
    """A request for a program's key. name: the name of the key, by which it can be revoked."""

    name: _MemberName


@router.post("/v1/invitations")
async def invite(
    request: Request,
    body: InvitationRequest,
    pairing: Annotated[PairingServer, Depends(get_pairing_server)],
) -> dict[str, Any]:
    """Return a code for one machine, and the command that uses it.

    For a client, also return `page`, the URL that opens the web UI with the code, and its QR code, if the
    lead serves the web UI.
    """
    opened = _open(body, pairing)
    if body.nearby:
        try:
            await pairing.announce()
        except ConfigError as error:
            raise RequestError(str(error), "nearby") from error
    invitation = _saved(lambda: pairing.invite(body.role, body.addresses, nearby=body.nearby))
    code = invitation.code()
    found = opened | {
        "code": code,
        "command": f"{pairing.back_command if body.role == 'back' else 'chat'} --join {code}",
        "role": body.role,
        "seconds": INVITATION_SECONDS,
        "addresses": invitation.addresses,
    }
    if body.role == "client" and request.app.state.with_page:
        found |= _page(invitation, pairing.addresses(body.addresses), pairing.certificate)
    return found


def _open(body: "OpenRequest", pairing: PairingServer) -> dict[str, Any]:
    """Let invited machines in at these addresses; return whether this has changed the CA's certificate.

    Raises RequestError if machines cannot connect.
    """
    if not (body.open or pairing.is_open):
        raise RequestError("this lead is closed to other machines. Open it with --open", "open")
    is_new = _saved(lambda: pairing.add_addresses(body.addresses))
    try:
        pairing.open()
    except ConfigError as error:
        raise RequestError(str(error), "open") from error
    return {"certificate_changed": is_new}


def _page(invitation: Invitation, addresses: Sequence[str], certificate: str) -> dict[str, Any]:
    """Return the web UI's URL with the secret of a code, which the page exchanges for a key. Browsers do not
    send the part after the #.
    """
    secret = base64.urlsafe_b64encode(invitation.secret).decode("ascii")
    url = f"https://{addresses[0]}/#join={secret}"
    return {"page": url, "qr": _qr(url), **_authority(addresses, certificate)}


def _authority(addresses: Sequence[str], certificate: str) -> dict[str, Any]:
    """Return the certificate of the CA, its SHA-256, and the QR code of its URL."""
    return {
        "certificate": certificate,
        "fingerprint": shown_fingerprint(certificate),
        "authority_qr": _qr(f"https://{addresses[0]}{AUTHORITY_PATH}"),
    }


def _qr(text: str) -> list[str]:
    """Return the rows of a QR code, with 1 for dark modules."""
    import segno  # noqa: PLC0415 - only who invites needs it

    return ["".join(map(str, row)) for row in segno.make(text, micro=False).matrix]


def _saved(act: Callable[[], T]) -> T:
    """Return the result of `act`; raises UnavailableError if its changes cannot be saved."""
    try:
        return act()
    except ConfigError as error:
        raise UnavailableError(str(error)) from error


@router.delete("/v1/invitations")
async def close(pairing: Annotated[PairingServer, Depends(get_pairing_server)]) -> dict[str, Any]:
    """Stop accepting machines."""
    pairing.close()
    return {"open": False}


@router.get("/v1/members")
async def members(pairing: Annotated[PairingServer, Depends(get_pairing_server)]) -> dict[str, Any]:
    """Return the members, the number of unused codes, and the number of attempts with wrong codes."""
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


@router.post("/v1/members")
async def add(
    body: AppRequest, pairing: Annotated[PairingServer, Depends(get_pairing_server)]
) -> dict[str, Any]:
    """Return a key for a program that does not support codes, and the `addresses` at which the key
    is valid.
    """
    opened = _open(body, pairing)
    member, key = _saved(lambda: pairing.add(body.name))
    addresses = pairing.addresses(body.addresses)
    return opened | {
        "name": member.name,
        "role": member.role.value,
        "key": key,
        "addresses": addresses,
        **_authority(addresses, pairing.certificate),
    }


@router.get(AUTHORITY_PATH)
async def authority(pairing: Annotated[PairingServer, Depends(get_pairing_server)]) -> Response:
    """Return the certificate of the lead's CA, in the form that operating systems install."""
    if not pairing.is_open:
        raise RequestError("this lead is closed for invited machines. Open it with `lead invite --open`")
    headers = {"Content-Disposition": 'attachment; filename="llama-duo.crt"'}
    return Response(pairing.certificate, media_type="application/x-x509-ca-cert", headers=headers)


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
    """Refuses, before the body is read, requests that came to the lead's own address."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_invited(request: Request) -> Response:
            if own_keys(request.scope) is None:
                raise RequestError("codes work only at the address for invited machines")
            return await handle(request)

        return handle_invited


class JoinRequest(NullIsDefault):
    """A request to join. secret: the secret of a code. name: the machine's own name for itself."""

    secret: Base64UrlBytes
    name: _MemberName


_joining = APIRouter(route_class=_JoinRoute)


@_joining.post("/v1/join")
async def join(
    body: JoinRequest, request: Request, pairing: Annotated[PairingServer, Depends(get_pairing_server)]
) -> dict[str, Any]:
    """Return the key of a new member, with the role for which the code was made."""
    try:
        peer = request.client.host if request.client else "unknown"
        member, key = _saved(lambda: pairing.join(body.secret, body.name, peer))
    except NotInvitedError as error:
        raise HTTPException(403, str(error)) from error
    return {
        "name": member.name,
        "role": member.role.value,
        "key": key,
        "addresses": pairing.all_addresses(),
    }


router.include_router(_joining)
