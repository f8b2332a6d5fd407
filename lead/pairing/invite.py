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
from annotated_types import Len
from pydantic import AfterValidator, Field, SecretStr, TypeAdapter, ValidationError
from pydantic_settings import CliToggleFlag

from lead.pairing.app_lines import app_lines, shown_fingerprint
from lead.text_table import listing
from shared.diagnostics.findings import count
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
_CHANGED = (
    "\n\nThe new address has changed the lead's CA certificate. Install it again in browsers and "
    "programs.\n`back` and `chat` fetch it themselves."
)


@dataclass(frozen=True, slots=True)
class _NewCode:
    """A lead's reply to a request for a code. command: the command that uses the code. A client also gets
    `page`, a URL that uses the code, and the `certificate` of the lead's CA.
    """

    command: str
    role: MemberRole
    seconds: float
    addresses: tuple[str, ...]
    page: str = ""
    certificate: str = ""
    certificate_changed: bool = False


@dataclass(frozen=True, slots=True)
class _NewKey:
    """A lead's reply to a request for a key. certificate: the certificate of the lead's CA."""

    name: str
    key: str
    addresses: Annotated[tuple[str, ...], Len(1)]
    certificate: str
    certificate_changed: bool = False


@dataclass(frozen=True, slots=True)
class _ListedModel:
    id: str


@dataclass(frozen=True, slots=True)
class _ListedModels:
    data: tuple[_ListedModel, ...]


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
    """Let one other machine, phone or program use the lead that runs here.

    The other machine needs only the code, which works once, within ten minutes. A back can read the texts
    that it drafts for. A person or a program sees only their own texts.

        lead invite           a code for      back --model small.gguf --join CODE
        lead invite --chat    a code for      chat --join CODE, and a QR code for a phone's browser
        lead invite --app     base URL, key and CA file for any other program

    The lead makes a key for each machine. The lead's own CA signs the lead's certificate.

        lead invite --open                let invited machines connect
        lead invite --list                list machines and programs
        lead invite --revoke laptop       end the access of this machine or program
        lead invite --close               close the lead for other machines
    """

    program = "lead invite"
    prefix = "LEAD_INVITE_"

    chat: CliToggleFlag[bool] = Field(
        False,
        description="make a code for a person, for `chat --join` or a browser, instead of a code for a back",
    )
    app: CliToggleFlag[bool] = Field(
        False, description="make a key for a program that uses the API of OpenAI, Anthropic or Ollama"
    )
    name: str = Field(
        "app",
        min_length=1,
        max_length=64,
        description="name of the key of --app, as shown by --list and used by --revoke",
    )
    open: CliToggleFlag[bool] = Field(
        False,
        description="let invited machines connect over HTTPS, on all addresses of this machine. The port is "
        "the lead's port + 1. This stays on when the lead restarts",
    )
    close: CliToggleFlag[bool] = Field(
        False, description="stop letting other machines connect. Unused codes become invalid"
    )
    list: CliToggleFlag[bool] = Field(False, description="list the machines and programs that have joined")
    revoke: str | None = Field(None, description="end the access of the machine or program with this name")
    address: CommaList = Field(
        (),
        max_length=4,
        description="comma-separated host names or addresses at which other machines reach this machine, as "
        "with Tailscale or a forwarded port (example.org:8443). Default: the addresses of this "
        "machine",
    )
    nearby: CliToggleFlag[bool] = Field(
        False,
        description="make a shorter code without an address. The other machine finds this machine by mDNS on "
        "the local network. Both machines need the extra `discover`",
    )
    lead: Annotated[str, AfterValidator(server_url)] = Field(
        "http://127.0.0.1:5555", description="URL of the lead"
    )
    admin_key: SecretStr | None = Field(None, description="a key with all permissions, if the lead has keys")
    admin_key_file: Path | None = Field(None, description="file with a key for --admin-key")
    ca_file: Path | None = Field(
        None, description="file with CA certificates (PEM) that verify a lead at https://…"
    )
    qr: bool = Field(True, description="on a terminal, show the QR code of --chat")


def main(arguments: Sequence[str]) -> None:
    """Run `lead invite`. Exits with status 1 and a message if the lead cannot be reached, or refuses."""
    settings = InviteSettings.from_command_line(arguments)
    with exiting_in_words(settings.program):
        print_text(run(settings))


def run(settings: InviteSettings) -> str:
    """Send the request to the lead; returns the text to print. Raises ConfigError."""
    if settings.close:
        _ask(settings, object, "DELETE", "/v1/invitations")
        return "other machines can no longer connect"
    if settings.revoke is not None:
        _ask(settings, object, "DELETE", "/v1/members", params={"name": settings.revoke})
        return f"{settings.revoke} no longer has access"
    if settings.list:
        return _members(_ask(settings, _Joined, "GET", "/v1/members"))
    body: dict[str, object] = {"open": settings.open, "addresses": settings.address}
    if settings.app:
        body["name"] = settings.name
        return _app(settings, _ask(settings, _NewKey, "POST", "/v1/members", json=body))
    body |= {"role": "client" if settings.chat else "back", "nearby": settings.nearby}
    made = _ask(settings, _NewCode, "POST", "/v1/invitations", json=body)
    shown = _invitation(made) + (_CHANGED if made.certificate_changed else "")
    with_qr = made.page and settings.qr and sys.stdout.isatty()
    return f"{shown}\n\n{_qr(made.page)}" if with_qr else shown


def _app(settings: InviteSettings, made: _NewKey) -> str:
    models = _ask(settings, _ListedModels, "GET", "/v1/models").data
    model = models[0].id if models else "MODEL"
    lines = app_lines(made.addresses, made.key, model, made.certificate)
    changed = _CHANGED if made.certificate_changed else ""
    return f"A key for one program, until `lead invite --revoke {made.name}`:\n\n{lines}{changed}"


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
        raise ConfigError(
            f"no lead answers at {settings.lead} ({error}). Start the lead, or set --lead"
        ) from error
    if response.status_code == HTTPStatus.UNAUTHORIZED:
        raise ConfigError("this lead needs an admin key. Set --admin-key-file or LEAD_INVITE_ADMIN_KEY")
    if response.status_code != HTTPStatus.OK:
        raise ConfigError(error_reason(response.content, response.status_code))
    try:
        return TypeAdapter(kind).validate_json(response.content)
    except ValidationError as error:
        raise ConfigError(
            f"{settings.lead} does not answer like a lead of this version. Check the address, or "
            "update llama-duo there"
        ) from error


def _invitation(made: _NewCode) -> str:
    addresses = " or ".join(made.addresses)
    where = f"a machine that reaches {addresses}" if addresses else "a machine on the same network"
    if made.role == "back":
        use = "Run this back. It can read the texts that it drafts for."
    else:
        use = "Run this chat. It is for one person."
    shown = (
        f"{use} Use this code once, within {made.seconds / 60:.0f} minutes, on {where}:\n\n    {made.command}"
    )
    if not made.page:
        return shown
    authority = f"{made.page.partition('#')[0]}ca.crt"
    return (
        f"{shown}\n\nOr open in a browser, for example on a phone:\n\n    {made.page}\n\nA browser "
        f"warns until you install the CA of this lead, {authority} (docs/certificates.md), "
        f"SHA-256\n    {shown_fingerprint(made.certificate)}"
    )


def _qr(text: str) -> str:
    import segno  # noqa: PLC0415 - only where one is shown

    drawn = io.StringIO()
    segno.make(text, micro=False).terminal(drawn, compact=True)
    return drawn.getvalue().rstrip("\n")


def _members(found: _Joined) -> str:
    rows = [
        (member.name, member.role, time.strftime("%Y-%m-%d %H:%M", time.localtime(member.joined_at)))
        for member in found.members
    ]
    shown = listing(("name", "role", "joined"), rows) if rows else "no machine has joined"
    where = (
        f"open at {', '.join(found.addresses)}"
        if found.open
        else "closed to other machines (open with --open)"
    )
    return f"{shown}\n{where}; {count(found.invited, 'unused code')}, {count(found.refused, 'refused code')}"
