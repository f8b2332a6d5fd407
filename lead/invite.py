"""`lead invite`: codes with which other machines join a running lead."""

import io
import sys
import time
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import httpx
from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import CliToggleFlag

from lead.text_table import listing
from shared.errors import ConfigError
from shared.exits import exiting_in_words
from shared.key_file import read_key
from shared.settings.base import ProgramSettings
from shared.settings.options import CommaList
from shared.settings.server_url import server_url
from shared.terminal import said_by_lead
from shared.tls import trusting

_SECONDS = 30.0


class InviteSettings(ProgramSettings):
    """Make a code with which one other machine joins the lead that runs here, within ten minutes.

    On the other machine it is all that is needed, once:

        back --model small.gguf --join CODE
        chat --join CODE

    The lead makes a certificate and a key for each machine by itself, and keeps them.

        lead invite --open                let invited machines in, from now on
        lead invite --list                who has joined
        lead invite --revoke laptop       that machine is let in no more
        lead invite --close               nobody is
    """

    program = "lead invite"
    prefix = "LEAD_INVITE_"

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
    """Exits with status 1 and a sentence if the lead cannot be asked, or says no."""
    settings = InviteSettings.from_command_line(arguments)
    with exiting_in_words(settings.program):
        sys.stdout.write(run(settings))


def run(settings: InviteSettings) -> str:
    """What to print; raises ConfigError."""
    if settings.close:
        _ask(settings, "DELETE", "/v1/invitations")
        return "no other machine is let in any more\n"
    if settings.revoke is not None:
        _ask(settings, "DELETE", "/v1/members", params={"name": settings.revoke})
        return f"{settings.revoke} is let in no more\n"
    if settings.list:
        return _members(_ask(settings, "GET", "/v1/members"))
    body = {"open": settings.open, "addresses": settings.address, "nearby": settings.nearby}
    invitation = _ask(settings, "POST", "/v1/invitations", json=body)
    return _invitation(invitation, with_qr=settings.qr and sys.stdout.isatty())


def _ask(settings: InviteSettings, method: str, path: str, **options: Any) -> dict[str, Any]:
    key = read_key(settings.admin_key, settings.admin_key_file)
    try:
        response = httpx.request(
            method,
            settings.lead + path,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            verify=trusting(settings.ca_file),
            timeout=_SECONDS,
            **options,
        )
        answer: dict[str, Any] = response.json()
    except (httpx.HTTPError, ValueError) as error:
        raise ConfigError(f"no lead answers at {settings.lead} ({error}): start it, or set --lead") from error
    if response.status_code == HTTPStatus.UNAUTHORIZED:
        raise ConfigError("this lead has keys: set --admin-key-file or LEAD_INVITE_ADMIN_KEY")
    if response.status_code != HTTPStatus.OK:
        raise ConfigError(said_by_lead(response.content, response.status_code))
    return answer


def _invitation(invitation: dict[str, Any], *, with_qr: bool) -> str:
    code, minutes = invitation["code"], invitation["seconds"] / 60
    addresses = invitation["addresses"]
    where = f"that reaches {' or '.join(addresses)}" if addresses else "on the same network"
    text = (
        f"For one machine {where}, within {minutes:.0f} minutes:\n\n"
        f"    back --model MODEL --join {code}\n\n"
        f"or, to ask questions there:\n\n"
        f"    chat --join {code}\n"
    )
    return f"{text}\n{_qr(code)}" if with_qr else text


def _qr(code: str) -> str:
    import segno  # noqa: PLC0415 - only where one is shown

    drawn = io.StringIO()
    segno.make(code, micro=False).terminal(drawn, compact=True)
    return drawn.getvalue()


def _members(found: dict[str, Any]) -> str:
    rows = [
        (
            member["name"],
            member["role"],
            time.strftime("%Y-%m-%d %H:%M", time.localtime(member["joined_at"])),
        )
        for member in found["members"]
    ]
    shown = listing(("name", "role", "joined"), rows) if rows else "nobody has joined"
    where = (
        f"open at {', '.join(found['addresses'])}" if found["open"] else "closed (--open lets machines in)"
    )
    return f"{shown}\n{where}; codes not used yet: {found['invited']}, wrong ones tried: {found['refused']}\n"
