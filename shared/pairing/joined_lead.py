"""The lead that this machine has joined with a code of `lead invite`: joins it, and stores its credentials.

A lead is identified by the key of its CA, whatever its address. The secret of a code is sent only to a
machine with a certificate of that CA, so nobody in between can use the code.
"""

import base64
import hashlib
import logging
import socket
import ssl
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
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
from shared.pairing.invitation import Invitation, MemberRole, fingerprint, only_certificate
from shared.terminal import error_reason
from shared.tls import trusting_only

log = logging.getLogger("shared")

_OTHER_ROLE: dict[MemberRole, str] = {
    "back": "this code is for chat. `lead invite` makes a code for a back",
    "client": "this code is for a back. `lead invite --chat` makes a code for chat",
}
"""The message for a program of this role that has a code for the other role."""
FORGET = "forget"
"""The word that, given instead of a code, makes the program forget the joined lead."""
JOIN_HELP = (
    "join a lead with a code that `%s` prints, and remember the lead, so that later starts need "
    f"neither address nor key. `{FORGET}` instead of a code forgets the lead"
)
"""The help text, in which %s is the command that makes such codes."""
_ANSWER_SECONDS = 5.0
_LOOK_SECONDS, _LOOK_AGAIN_SECONDS = 10.0, 3.0
_MAX_KEPT, _MAX_TOLD = 12, 64
_MAX_CERTIFICATE_BYTES = 8192
AUTHORITY_PATH = "/ca.crt"
"""The path at which a lead serves the certificate of its CA."""
_FILE, _CERTIFICATE = "lead.json", "certificate.pem"


class _KeptLead(BaseModel, frozen=True):
    """The joined lead, as stored. code: SHA-256 of the secret of the code that was used, in hexadecimal.
    name: the lead's name for this machine.
    """

    addresses: Annotated[tuple[str, ...], Len(1)]
    key: str
    code: str = ""
    name: str = ""


class _Membership(BaseModel, frozen=True):
    """A lead's reply to a machine that has joined; `name`: the lead's name for that machine.

    `addresses`: further addresses (host:port) at which the lead may be found.
    """

    name: str
    key: str
    addresses: Annotated[tuple[str, ...], Len(max_length=_MAX_TOLD)] = ()


@dataclass(frozen=True, slots=True)
class JoinedLead:
    """A lead that this machine has joined. `certificate`: the file with the certificate of the lead's CA,
    which is trusted under any host name. `name`: the lead's name for this machine.
    """

    url: str
    key: SecretStr
    certificate: Path
    name: str = ""

    @classmethod
    def find(cls, role: MemberRole, name: str, code: str | None) -> Self | None:
        """Join a lead with `code`, or return the lead joined before; None: there is none. Raises
        ConfigError.
        """
        folder = user_data_path("llama-duo") / "joined" / role
        if code == FORGET:
            for path in (folder / _FILE, folder / _CERTIFICATE):
                path.unlink(missing_ok=True)
            log.info("forgot the joined lead")
        elif code:
            _use(folder, _invitation(code, role), name)
        return cls._read(folder)

    @classmethod
    def _read(cls, folder: Path) -> Self | None:
        kept = _read(folder)
        if kept is None:
            return None
        address = _locate(folder, kept)
        return cls(f"https://{address}", SecretStr(kept.key), folder / _CERTIFICATE, kept.name)


def _read(folder: Path) -> _KeptLead | None:
    """Raises ConfigError."""
    try:
        return _KeptLead.model_validate_json((folder / _FILE).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise ConfigError(
            f"cannot read the file of the joined lead ({folder / _FILE}). Join the lead again with --join"
        ) from error


def _use(folder: Path, invitation: Invitation, name: str) -> None:
    """Join with a code, unless it is the one with which this machine has joined. Raises ConfigError."""
    try:
        kept = _read(folder)
    except ConfigError:  # what cannot be read is replaced
        kept = None
    if kept and kept.code == _digest(invitation):
        return
    is_another = kept is not None and not _is_of(folder, invitation)
    _join(folder, invitation, name)
    if kept and is_another:
        log.info("forgot the joined lead at %s", kept.addresses[0])


def _locate(folder: Path, kept: _KeptLead) -> str:
    """Return the address at which the lead answers, and remember it; the first address if it answers at none.
    Stored addresses are tried first, then announced addresses. The lead is identified by the key of its CA.
    """
    try:
        certificate = (folder / _CERTIFICATE).read_text("ascii")
        pin = fingerprint(certificate)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot read the certificate in {folder}. Join the lead again with --join"
        ) from error
    for address, found in _asked(kept.addresses, certificate, pin):
        if found:
            if found != certificate or address != kept.addresses[0]:
                addresses = dict.fromkeys((address, *kept.addresses))
                # An address that cannot be saved is found again the next time.
                with suppress(ConfigError) if found == certificate else nullcontext():
                    _keep(folder, kept.model_copy(update={"addresses": tuple(addresses)[:_MAX_KEPT]}), found)
            return address
    return kept.addresses[0]


def _asked(addresses: Sequence[str], certificate: str, pin: bytes) -> Iterator[tuple[str, str | None]]:
    """Yield each address, and the CA's certificate if the lead is at this address.

    The last known address is tried first. All other stored addresses follow at the same time, because each
    can take seconds in another network. Announced addresses come last.
    """

    def ask(address: str) -> tuple[str, str | None]:
        return address, _authority(address, certificate, pin)

    yield ask(addresses[0])
    with ThreadPoolExecutor(_MAX_KEPT, "locate") as pool:
        yield from pool.map(ask, addresses[1:])
    yield from map(ask, _announced(pin))


def _announced(pin: bytes) -> Iterator[str]:
    with suppress(ConfigError):  # without the extra, or without a network
        yield from find_pairing(pin.hex(), _LOOK_AGAIN_SECONDS)


def _authority(address: str, certificate: str, pin: bytes) -> str | None:
    """Return the certificate of the CA with the key `pin` if the server at `address` has it. `certificate`:
    the last known certificate.
    """
    try:
        _shake_hands(address, certificate)
    except ssl.SSLCertVerificationError:
        return fetch_authority(address, pin)
    except (OSError, ValueError):
        return None
    return certificate


def _shake_hands(address: str, certificate: str) -> None:
    """Raises OSError or ValueError unless the CA with this certificate has certified the server."""
    host = _host_and_port(address)
    with (
        socket.create_connection(host, _ANSWER_SECONDS) as connection,
        trusting_only(certificate).wrap_socket(connection, server_hostname=host[0]),
    ):
        pass


def fetch_authority(address: str, pin: bytes) -> str | None:
    """Return the certificate (PEM) of the CA with the key `pin` from a server at `address` that this CA has
    certified; None: there is no such server.

    Anyone can have the CA's certificate, so the server must also use a certificate that the CA has signed.
    Nothing secret is sent.
    """
    import httpx  # noqa: PLC0415 - only to join, or after the certificate was made anew

    try:
        with httpx.stream(
            "GET",
            f"https://{address}{AUTHORITY_PATH}",
            verify=False,  # noqa: S501 - the key is compared
            timeout=_ANSWER_SECONDS,
            trust_env=False,
        ) as response:
            given = only_certificate(next(response.iter_raw(_MAX_CERTIFICATE_BYTES), b"").decode("ascii"))
        if fingerprint(given) != pin:
            return None
        _shake_hands(address, given)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError):
        return None
    return given


def _invitation(code: str, role: MemberRole) -> Invitation:
    """Parse a code; raises ConfigError. A code for another role is refused before the lead is asked."""
    invitation = Invitation.parse(code)
    if invitation.role != role:
        raise ConfigError(_OTHER_ROLE[role])
    return invitation


def _is_of(folder: Path, invitation: Invitation) -> bool:
    """Return whether the lead that made this code is the joined lead."""
    with suppress(OSError, ValueError):
        return fingerprint((folder / _CERTIFICATE).read_text("ascii")) == invitation.fingerprint
    return False


def _join(folder: Path, invitation: Invitation, name: str) -> None:
    """Get a key, and save it with the addresses of its lead; raises ConfigError."""
    address, certificate = _reach(invitation)
    secret = base64.urlsafe_b64encode(invitation.secret).decode("ascii")
    answer = _post(address, certificate, {"secret": secret, "name": name[:64] or "machine"})
    addresses = tuple(dict.fromkeys((address, *invitation.addresses, *answer.addresses)))
    code = _digest(invitation)
    kept = _KeptLead(addresses=addresses[:_MAX_KEPT], key=answer.key, code=code, name=answer.name)
    _keep(folder, kept, certificate)
    log.info("joined the lead at %s as %s", address, answer.name)


def _keep(folder: Path, kept: _KeptLead, certificate: str) -> None:
    """Raises ConfigError."""
    try:
        write_private(folder / _CERTIFICATE, certificate.encode("ascii"))
        write_private(folder / _FILE, kept.model_dump_json().encode())
    except OSError as error:
        raise ConfigError(f"joined the lead, but cannot save it in {folder}: {error.strerror}") from error


def _digest(invitation: Invitation) -> str:
    return hashlib.sha256(invitation.secret).hexdigest()


def _reach(invitation: Invitation) -> tuple[str, str]:
    """Return the address at which the lead of this code answers, and its CA's certificate; raises
    ConfigError.
    """
    addresses = invitation.addresses or _look_for(invitation)
    for address in addresses:
        if certificate := fetch_authority(address, invitation.fingerprint):
            return address, certificate
    if impostor := next(filter(_answers, addresses), None):
        raise ConfigError(
            f"the machine at {impostor} is not the lead that made this code: its certificate "
            "differs. The code was not sent"
        )
    raise ConfigError(
        f"no lead answers at {' or '.join(addresses)}. Check that the lead runs and that no "
        "firewall blocks it. `lead invite --address HOST` makes a code with another address"
    )


def _look_for(invitation: Invitation) -> tuple[str, ...]:
    """Return the lead's addresses on the local network; raises ConfigError if it is not found."""
    if addresses := find_pairing(invitation.fingerprint.hex(), _LOOK_SECONDS):
        return addresses
    raise ConfigError(
        "the lead of this code was not found on this network. Check that it runs on the same "
        "network. `lead invite` without --nearby makes a code with an address"
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
        raise ConfigError(f"the lead at {address} refuses this machine: {message}")
    try:
        return _Membership.model_validate_json(response.content)
    except ValidationError as error:
        raise ConfigError(
            f"{address} does not answer like a lead of this version. Check the address, or "
            "update llama-duo there"
        ) from error


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
