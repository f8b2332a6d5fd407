"""The server for invited machines: HTTPS on all addresses of this machine, for members only.

It is separate from the lead's own address (--host, --port). That address may stay open to this machine's
programs without keys, while all other machines need a key.
"""

import asyncio
import contextlib
import json
import logging
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from lead.http.middleware.auth import OWN_KEYS
from lead.pairing.members import JoinedMachine, KeptInvitation, Members
from lead.server.accepting import Acceptor
from lead.server.draining import DrainingServer
from lead.server.listening import listen
from lead.settings.keys import Principal, Role
from shared.cached_files import hold_folder, write_private
from shared.errors import ConfigError
from shared.pairing.discovery import announce_pairing, own_addresses, with_port
from shared.pairing.invitation import Invitation, MemberRole, fingerprint

if TYPE_CHECKING:
    from lead.pairing.certificate import Authority

log = logging.getLogger("lead")

_FILE = "members.json"
_MAX_ADDRESSES, _MAX_MORE_ADDRESSES = 4, 8
_LOOK_SECONDS = 10.0
"""The time between two looks at the addresses of this machine."""
_listen = partial(
    listen,
    advice="This port is the lead's port + 1. End the other program, or start the lead with another --port",
)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The stored members and invitations. addresses: further addresses, set by `lead invite --address`."""

    is_open: bool = False
    members: tuple[JoinedMachine, ...] = ()
    invitations: tuple[KeptInvitation, ...] = ()
    addresses: tuple[str, ...] = ()


_kept: TypeAdapter[_Kept] = TypeAdapter(_Kept)


class PairingServer:
    """Accepts connections of members while it is open, and stores the members in a file."""

    def __init__(
        self,
        folder: Path,
        port: int,
        server: DrainingServer,
        *,
        back_command: str,
        listen: Callable[[str, int], socket.socket] = _listen,
        own_addresses: Callable[[], Sequence[str]] = own_addresses,
        announce: Callable[[int, str], AbstractContextManager[None]] = announce_pairing,
    ) -> None:
        """folder: keeps certificates, keys and members. server: serves the connections. back_command: as
        `LeadSettings.back_command`.

        Raises ConfigError if members cannot be read.
        """
        self.port = port
        self.back_command = back_command
        self._folder = folder
        self._hold = hold_folder(folder)  # for `lead uninstall`
        self._server = server
        self._listen = listen
        self._own_addresses = own_addresses
        self._announce = announce
        self._announcing = contextlib.ExitStack()
        self._announced: Sequence[str] | None = None  # these addresses
        self._announcement = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None
        self._hiding: asyncio.Future[None] | None = None
        self.read()
        self._listening: Acceptor | None = None
        self._authority: Authority | None = None

    def read(self) -> None:
        """Read the stored members; raises ConfigError."""
        kept = _read(self._folder / _FILE)
        self.is_meant_to_be_open = kept.is_open
        self._more_addresses = kept.addresses
        self.members = Members(kept.members, kept.invitations, clock=_running_time, wall_clock=time.time)

    def identify(self, secret: str | None) -> Principal | None:
        """Return the member with this key; None if there is none."""
        return self.members.identify(secret)

    @property
    def is_open(self) -> bool:
        return self._listening is not None

    def open(self) -> None:
        """Listen for members, now and after each start; raises ConfigError. Does nothing if the server is
        open.
        """
        if self.is_open:
            return
        tls = self._renewed().context
        try:
            listener = self._listen("::", self.port)
        except ConfigError:  # this machine has no IPv6, or the port is taken
            listener = self._listen("0.0.0.0", self.port)
        self._listening = self._server.listen_also(listener, tls, {OWN_KEYS: self})
        self.is_meant_to_be_open = True
        self._save()
        log.info("invited machines connect to https://%s", ", https://".join(self.addresses()))

    async def start(self) -> None:
        """Listen for members if the server was open when the lead last ended. A failure is logged, and the
        server tries again.
        """
        try:
            self.read()  # members may have joined the lead that this one replaces
            if self.is_meant_to_be_open:
                self.open()
        except ConfigError as error:
            log.error("invited machines cannot connect: %s", error)  # noqa: TRY400 - a sentence for a person
        self._following = asyncio.create_task(self._follow_addresses())

    async def _follow_addresses(self) -> None:
        while True:
            await self.follow_addresses()
            await asyncio.sleep(_LOOK_SECONDS)

    async def follow_addresses(self) -> None:
        """Certify and announce the present addresses of this machine, if the server is open.

        If another program had the server's port, open the server first. Members that do not find the server
        at its old address look for the announcement, which needs the extra `discover`.
        """
        if not self.is_meant_to_be_open:
            return
        try:
            self.open()
            self._renewed()
            if self._own_addresses() != self._announced:
                await self._announce_anew()
        except Exception as error:  # noqa: BLE001 - whatever zeroconf raises, certificates are renewed
            log.debug("%s", error)

    async def announce(self) -> None:
        """Announce the server on the local network until it is closed; raises ConfigError."""
        if self._announced is None:
            await self._announce_anew()

    async def _announce_anew(self) -> None:
        async with self._announcement:
            await asyncio.to_thread(self._announcing.close)
            self._announced, addresses = None, self._own_addresses()
            announcement = self._announce(self.port, self.fingerprint.hex())
            await asyncio.to_thread(self._announcing.enter_context, announcement)
            self._announced = addresses

    async def _hide(self) -> None:
        """End the announcement, which takes a while. An announcement that is just being made is completed
        first.
        """
        async with self._announcement:
            self._announced = None
            await asyncio.to_thread(self._announcing.close)

    async def end(self) -> None:
        """Stop listening because the lead ends; the next start opens the server again if it is open now."""
        if self._following:
            self._following.cancel()
        # If hiding fails, the rest is to end all the same.
        await asyncio.gather(self._hide(), return_exceptions=True)
        if self._hold is not None:
            self._hold.close()
            self._hold = None

    def close(self) -> None:
        """Stop listening, now and after each start. Closes the connections of members, who stay members, and
        invalidates all codes.
        """
        self._hiding = asyncio.ensure_future(self._hide())
        self.is_meant_to_be_open = False
        self.members.withdraw_invitations()
        if self._listening:
            self._listening.close()
        self._listening = None
        for member in self.members:
            self._server.disconnect(member.number)
        self._save()

    def addresses(self, others: Iterable[str] = ()) -> tuple[str, ...]:
        """Return host:port for each of `others`, or else for each address of this machine, the likeliest
        first.

        IPv6 addresses are included only if there are no others, so that codes are short.
        """
        own = self._own_addresses()
        ipv4 = [address for address in own if ":" not in address]
        hosts = list(others) or (ipv4 or list(own))[:_MAX_ADDRESSES] or ["127.0.0.1"]
        return tuple(with_port(host, self.port) for host in hosts)

    def all_addresses(self) -> tuple[str, ...]:
        """Return host:port of all names and addresses under which other machines may find this machine."""
        others = (_own_names()[-1], *self._more_addresses)
        return tuple(dict.fromkeys((*self.addresses(), *self.addresses(others))))

    @property
    def fingerprint(self) -> bytes:
        """The fingerprint of the CA's key."""
        return fingerprint(self.certificate)

    @property
    def certificate(self) -> str:
        """The CA's certificate in PEM; raises ConfigError."""
        return (self._authority or self._renewed()).certificate

    def _renewed(self) -> "Authority":
        """Return the CA, with certificates for all names and addresses of this machine; raises
        ConfigError.
        """
        named = (urlsplit(f"//{with_port(each, self.port)}").hostname or "" for each in self._more_addresses)
        hosts = (*_own_names(), "localhost", "127.0.0.1", "::1", *self._own_addresses(), *named)
        if self._authority is None:
            # only a lead that invites needs cryptography
            from lead.pairing.certificate import Authority  # noqa: PLC0415

            self._authority = Authority(self._folder, hosts)
        else:
            self._authority.renew(hosts)
        return self._authority

    def add_addresses(self, addresses: Iterable[str]) -> bool:
        """Add names or addresses of this machine, and certify them. Returns whether the CA's certificate has
        changed. Raises ConfigError.
        """
        before = self._authority and self._authority.certificate
        more = tuple(dict.fromkeys((*addresses, *self._more_addresses)))[:_MAX_MORE_ADDRESSES]
        if more != self._more_addresses:
            self._more_addresses = more
            self._renewed()
            self._save()
        return bool(before) and before != self.certificate

    def invite(self, role: MemberRole, addresses: Iterable[str] = (), *, nearby: bool = False) -> Invitation:
        """Return an invitation for a machine that reaches this one at `addresses` (hosts); without them, at
        the addresses of this machine.

        nearby: the invited machine finds this one by its announcement (`announce`). Raises ConfigError.
        """
        reached = () if nearby else self.addresses(addresses)
        secret = self.members.invite(Role(role))
        self._save()
        return Invitation(role, secret, self.fingerprint, reached)

    def add(self, name: str) -> tuple[JoinedMachine, str]:
        """Add a client that needs no code; return it and its key. Raises ConfigError."""
        return self._saved(self.members.add(Role.CLIENT, name))

    def join(self, secret: bytes, name: str, peer: str) -> tuple[JoinedMachine, str]:
        """Add a member by its code (`Members.join`); also raises ConfigError if it cannot be saved."""
        member, key = self._saved(self.members.join(secret, name))
        log.info("%s %s has joined from %s", member.role.value, member.name, peer)
        return member, key

    def _saved(self, made: tuple[JoinedMachine, str]) -> tuple[JoinedMachine, str]:
        """Save the new member `made` and return it. If it cannot be saved, remove it and raise
        ConfigError.
        """
        try:
            self._save()
        except ConfigError:
            self.members.remove(made[0].name)
            raise
        return made

    def revoke(self, name: str) -> bool:
        """Remove a member and close its connections; returns False if there is none."""
        member = self.members.remove(name)
        if member:
            self._save()
            self._server.disconnect(member.number)
            log.info("%s %s is no longer a member", member.role.value, member.name)
        return member is not None

    def _save(self) -> None:
        invitations = tuple(self.members.invitations)
        kept = asdict(_Kept(self.is_meant_to_be_open, tuple(self.members), invitations, self._more_addresses))
        content = json.dumps(kept, default=lambda role: role.value, indent=1)
        try:
            write_private(self._folder / _FILE, content.encode())
        except OSError as error:
            raise ConfigError(f"cannot save the list of members: {error}") from error
        if self._hold is None:  # the folder is new
            self._hold = hold_folder(self._folder)


def _read(path: Path) -> _Kept:
    try:
        return _kept.validate_json(path.read_bytes())
    except FileNotFoundError:
        return _Kept()
    except (OSError, ValidationError) as error:
        raise ConfigError(f"cannot read the list of members: {path}: {error}") from error


def _own_names() -> tuple[str, str]:
    """Return the name of this machine, and its name under mDNS."""
    name = socket.gethostname().lower()
    return name, f"{name.partition('.')[0]}.local"


def _running_time() -> float:
    """Return the seconds of a clock that cannot be set, and that goes on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
