"""`lead invite`: codes with which other machines join a running lead."""

import io
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, TypeVar

import httpx
from pydantic import AfterValidator, Field, SecretStr, TypeAdapter, ValidationError
from pydantic_settings import CliToggleFlag

from lead.text_table import listing
from shared.errors import ConfigError
from shared.exits import exiting_in_words, print_text
from shared.key_file import read_key
from shared.pairing.invitation import MemberRole
from shared.settings.base import ProgramSettings
from shared.settings.options import CommaList
from shared.settings.server_url import server_url
from shared.terminal import error_reason
from shared.tls import trusting

T = TypeVar("T")

_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class _NewCode:
    """A lead's reply to a request for a code."""

    code: str
    role: MemberRole
    seconds: float
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _ListedMember:
    name: str
    role: MemberRole
    joined_at: int


@dataclass(frozen=True, slots=True)
class _Joined:
    """A lead's reply about its members and codes."""

    open: bool
    addresses: tuple[str, ...]
    members: tuple[_ListedMember, ...]
    invited: int
    refused: int


class InviteSettings(ProgramSettings):
    """Make a code with which one other machine joins the lead that runs here, within ten minutes.

    On the other machine the code is all that is needed, once. A back reads the texts for which it drafts, a
    person's chat only its own: each needs a code made for it.

        lead invite           a code for      back --model small.gguf --join CODE
        lead invite --chat    a code for      chat --join CODE

    The lead makes a certificate and a key for each machine by itself, and keeps them.

        lead invite --open                let invited machines in, from now on
        lead invite --list                who has joined
        lead invite --revoke laptop       that machine is let in no more
        lead invite --close               nobody is
    """

    program = "lead invite"
    prefix = "LEAD_INVITE_"

    chat: CliToggleFlag[bool] = Field(
        False, description="a code for a person who asks questions (`chat --join`), instead of one for a back"
    )
    open: CliToggleFlag[bool] = Field(
        False,
        description="let invited machines in, over HTTPS, at all addresses of this machine and the port "
        "after the lead's; it stays so when the lead is started again",
    )
    close: CliToggleFlag[bool] = Field(False, description="let no other machine in any more")
    list: CliToggleFlag[bool] = Field(False, description="show who has joined")
    revoke: str | None = Field(None, description="name of a machine that has joined, which is let in no more")
    address: CommaList = Field(
        (),
        max_length=4,
        description="host name or address at which the other machine reaches this one, comma-separated, as "
        "with Tailscale or a forwarded port; without it, this machine's own addresses",
    )
    nearby: CliToggleFlag[bool] = Field(
        False,
        description="a shorter code, without an address: the other machine finds this one on the local "
        "network by mDNS, where it is announced for ten minutes (needs the extra `discover` on both)",
    )
    lead: Annotated[str, AfterValidator(server_url)] = Field(
        "http://127.0.0.1:5555", description="URL of the lead, as this machine reaches it"
    )
    admin_key: SecretStr | None = Field(
        None, description="a key of the lead with all permissions, if it has keys"
    )
    admin_key_file: Path | None = Field(None, description="file with such a key")
    ca_file: Path | None = Field(None, description="file with CA certificates (PEM) for a lead at https://…")
    qr: bool = Field(True, description="on a terminal, show the code as a QR code, too")


def main(arguments: Sequence[str]) -> None:
    """Run `lead invite`. Exits with status 1 and a message if the lead cannot be reached, or refuses."""
    settings = InviteSettings.from_command_line(arguments)
    with exiting_in_words(settings.program):
        print_text(run(settings))


def run(settings: InviteSettings) -> str:
    """Send the request to the lead; returns the text to print. Raises ConfigError."""
    if settings.close:
        _ask(settings, object, "DELETE", "/v1/invitations")
        return "no other machine is let in any more"
    if settings.revoke is not None:
        _ask(settings, object, "DELETE", "/v1/members", params={"name": settings.revoke})
        return f"{settings.revoke} is let in no more"
    if settings.list:
        return _members(_ask(settings, _Joined, "GET", "/v1/members"))
    role: MemberRole = "client" if settings.chat else "back"
    body = {
        "role": role,
        "open": settings.open,
        "addresses": settings.address,
        "nearby": settings.nearby,
    }
    made = _ask(settings, _NewCode, "POST", "/v1/invitations", json=body)
    shown = _invitation(made)
    return f"{shown}\n\n{_qr(made.code)}" if settings.qr and sys.stdout.isatty() else shown


def _ask(settings: InviteSettings, kind: type[T], method: str, path: str, **options: Any) -> T:
    """Return the reply of the lead at `--lead`; raises ConfigError."""
    key = read_key(settings.admin_key, settings.admin_key_file)
    try:
        response = httpx.request(
            method,
            settings.lead + path,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            verify=trusting(settings.ca_file),
            timeout=_SECONDS,
            trust_env=False,
            **options,
        )
    except httpx.HTTPError as error:
        raise ConfigError(f"no lead answers at {settings.lead} ({error}): start it, or set --lead") from error
    if response.status_code == HTTPStatus.UNAUTHORIZED:
        raise ConfigError("this lead has keys: set --admin-key-file or LEAD_INVITE_ADMIN_KEY")
    if response.status_code != HTTPStatus.OK:
        raise ConfigError(error_reason(response.content, response.status_code))
    try:
        return TypeAdapter(kind).validate_json(response.content)
    except ValidationError as error:
        raise ConfigError(f"{settings.lead} does not answer as a lead of this version does") from error


def _invitation(made: _NewCode) -> str:
    addresses = " or ".join(made.addresses)
    where = f"a machine that reaches {addresses}" if addresses else "a machine on the same network"
    if made.role == "back":
        whom, command = "one back (it reads the texts for which it drafts)", "back --model MODEL"
    else:
        whom, command = "one person's chat", "chat"
    return (
        f"A code for {whom}, on {where}, within {made.seconds / 60:.0f} minutes:\n\n"
        f"    {command} --join {made.code}"
    )


def _qr(code: str) -> str:
    import segno  # noqa: PLC0415 - only where one is shown

    drawn = io.StringIO()
    segno.make(code, micro=False).terminal(drawn, compact=True)
    return drawn.getvalue().rstrip("\n")


def _members(found: _Joined) -> str:
    rows = [
        (member.name, member.role, time.strftime("%Y-%m-%d %H:%M", time.localtime(member.joined_at)))
        for member in found.members
    ]
    shown = listing(("name", "role", "joined"), rows) if rows else "nobody has joined"
    where = f"open at {', '.join(found.addresses)}" if found.open else "closed (--open lets machines in)"
    return f"{shown}\n{where}; codes not used yet: {found.invited}, wrong ones tried: {found.refused}"
