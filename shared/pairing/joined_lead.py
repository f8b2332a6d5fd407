"""The lead that this machine has joined with a code of `lead invite`: joins it, and stores its credentials.

A lead is identified by its certificate, whatever its address. The secret of a code is sent only to the
machine with that certificate, so no machine between them can use the code.
"""

import base64
import logging
import socket
import ssl
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from annotated_types import Len
from platformdirs import user_data_path
from pydantic import BaseModel, SecretStr, ValidationError

from shared.cached_files import write_private
from shared.errors import ConfigError
from shared.pairing.discovery import find_pairing
from shared.pairing.invitation import Invitation, MemberRole, fingerprint
from shared.terminal import error_reason
from shared.tls import trusting_only

log = logging.getLogger("shared")

_OTHER_ROLE: dict[MemberRole, str] = {
    "back": "this code is for chat, not for a back: `lead invite` makes one for a back",
    "client": "this code is for a back, not for chat: `lead invite --chat` makes one for chat",
}
"""The message for a program of this role that has a code for the other role."""
FORGET = "forget"
"""Given instead of a code, forgets the lead that was joined."""
JOIN_HELP = (
    "join a lead with a code of its `%s`, and remember it: from then on neither address nor key has to be "
    f"given. `{FORGET}` instead of a code forgets it"
)
"""The help text, in which %s is the command that makes such codes."""
_ANSWER_SECONDS = 5.0
_LOOK_SECONDS = 10.0
_FILE, _CERTIFICATE = "lead.json", "certificate.pem"


class _KeptLead(BaseModel, frozen=True):
    addresses: Annotated[tuple[str, ...], Len(1)]
    key: str


class _Membership(BaseModel, frozen=True):
    """A lead's reply to a machine that has joined; `name`: the lead's name for that machine."""

    name: str
    key: str


@dataclass(frozen=True, slots=True)
class JoinedLead:
    """A joined lead. certificate: the file with its own certificate, which is trusted under any host name."""

    url: str
    key: SecretStr
    certificate: Path

    @classmethod
    def find(cls, role: MemberRole, name: str, code: str | None) -> Self | None:
        """Join a lead with `code`, or return the lead joined before; None: there is none. Raises
        ConfigError.
        """
        folder = user_data_path("llama-duo") / "joined" / role
        if code == FORGET:
            for path in (folder / _FILE, folder / _CERTIFICATE):
                path.unlink(missing_ok=True)
        elif code:
            _join(folder, _invitation(code, role), name)
        return cls._read(folder)

    @classmethod
    def _read(cls, folder: Path) -> Self | None:
        try:
            kept = _KeptLead.model_validate_json((folder / _FILE).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            raise ConfigError(
                f"cannot read which lead was joined ({folder / _FILE}): join it again with --join"
            ) from error
        address = next(filter(_answers, kept.addresses), kept.addresses[0])
        return cls(f"https://{address}", SecretStr(kept.key), folder / _CERTIFICATE)


def _invitation(code: str, role: MemberRole) -> Invitation:
    """Parse a code; raises ConfigError, also for a code of another role, before the lead is asked."""
    invitation = Invitation.parse(code)
    if invitation.role != role:
        raise ConfigError(_OTHER_ROLE[role])
    return invitation


def _join(folder: Path, invitation: Invitation, name: str) -> None:
    """Get a key, and write down where it is good for; raises ConfigError."""
    address, certificate = _reach(invitation)
    secret = base64.urlsafe_b64encode(invitation.secret).decode("ascii")
    answer = _post(address, certificate, {"secret": secret, "name": name[:64] or "machine"})
    addresses = dict.fromkeys((address, *invitation.addresses))
    kept = _KeptLead(addresses=tuple(addresses), key=answer.key)
    try:
        write_private(folder / _CERTIFICATE, certificate.encode("ascii"))
        write_private(folder / _FILE, kept.model_dump_json().encode())
    except OSError as error:
        raise ConfigError(f"joined, but cannot remember it in {folder}: {error.strerror}") from error
    log.info("joined the lead at %s as %s", address, answer.name)


def _reach(invitation: Invitation) -> tuple[str, str]:
    """Return the address at which the lead of this code answers, and its certificate; raises ConfigError."""
    impostor = None
    addresses = invitation.addresses or _look_for(invitation)
    for address in addresses:
        try:
            certificate = ssl.get_server_certificate(_host_and_port(address), timeout=_ANSWER_SECONDS)
        except (OSError, ValueError):
            continue
        if fingerprint(certificate) == invitation.fingerprint:
            return address, certificate
        impostor = address
    if impostor:
        raise ConfigError(
            f"the machine at {impostor} is not the lead that made this code: its certificate is another one. "
            "The code was not sent to it"
        )
    raise ConfigError(
        f"no lead answers at {' or '.join(addresses)}: is it running, and does a firewall let this "
        "machine in? `lead invite --address HOST` makes a code with another address"
    )


def _look_for(invitation: Invitation) -> tuple[str, ...]:
    """Return the lead's addresses on the local network; raises ConfigError if it is not found."""
    if addresses := find_pairing(invitation.fingerprint.hex(), _LOOK_SECONDS):
        return addresses
    raise ConfigError(
        "the lead of this code is not found on this network: is the code older than ten minutes, or is the "
        "lead on another network? `lead invite` without --nearby makes one with an address"
    )


def _post(address: str, certificate: str, body: dict[str, str]) -> _Membership:
    import httpx  # noqa: PLC0415 - only to join

    try:
        response = httpx.post(
            f"https://{address}/v1/join",
            json=body,
            verify=trusting_only(certificate),
            timeout=_ANSWER_SECONDS,
            trust_env=False,
        )
    except httpx.HTTPError as error:
        raise ConfigError(f"the lead at {address} cannot be joined: {error}") from error
    if response.status_code != HTTPStatus.OK:
        message = error_reason(response.content, response.status_code)
        raise ConfigError(f"the lead at {address} does not let this machine in: {message}")
    try:
        return _Membership.model_validate_json(response.content)
    except ValidationError as error:
        raise ConfigError(f"{address} does not answer as a lead of this version does") from error


def _answers(address: str) -> bool:
    try:
        socket.create_connection(_host_and_port(address), _ANSWER_SECONDS).close()
    except (OSError, ValueError):
        return False
    return True


def _host_and_port(address: str) -> tuple[str, int]:
    """Return host and port of an address; raises ValueError."""
    parts = urlsplit(f"//{address}")
    return parts.hostname or "", parts.port or 0
