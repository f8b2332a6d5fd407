"""The server for invited machines: HTTPS on all addresses of this machine, for members only.

It is separate from the address that the lead is given: that one may stay open to this machine's own programs,
without keys, while all other machines need a key.
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
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from lead.http.middleware.auth import OWN_KEYS
from lead.pairing.certificate import server_context
from lead.pairing.members import INVITATION_SECONDS, JoinedMachine, Members
from lead.server.accepting import Acceptor
from lead.server.draining import DrainingServer
from lead.server.listening import listen
from lead.settings.keys import Principal, Role
from shared.cached_files import write_private
from shared.errors import ConfigError
from shared.pairing.discovery import announce_pairing, own_addresses
from shared.pairing.invitation import Invitation, MemberRole, fingerprint

log = logging.getLogger("lead")

_FILE = "members.json"
_MAX_ADDRESSES = 4


@dataclass(frozen=True, slots=True)
class _Kept:
    is_open: bool = False
    members: tuple[JoinedMachine, ...] = ()


_kept: TypeAdapter[_Kept] = TypeAdapter(_Kept)


class PairingServer:
    """Accepts connections of members while it is open, and stores the members in a file."""

    def __init__(
        self,
        folder: Path,
        port: int,
        server: DrainingServer,
        *,
        listen: Callable[[str, int], socket.socket] = listen,
        own_addresses: Callable[[], Sequence[str]] = own_addresses,
        announce: Callable[[int, str], AbstractContextManager[None]] = announce_pairing,
    ) -> None:
        """folder: keeps certificate, key and members. server: serves the machines that connect.

        Raises ConfigError if members cannot be read.
        """
        self.port = port
        self._folder = folder
        self._server = server
        self._listen = listen
        self._own_addresses = own_addresses
        self._announce = announce
        self._announcing: contextlib.ExitStack | None = None
        self._announced_until: asyncio.TimerHandle | None = None
        self.read()
        self._listening: Acceptor | None = None
        self._certificate = ""

    def read(self) -> None:
        """Read the stored members; raises ConfigError."""
        kept = _read(self._folder / _FILE)
        self.was_open = kept.is_open
        self.members = Members(kept.members, clock=time.monotonic, wall_clock=time.time)

    def identify(self, secret: str | None) -> Principal | None:
        """Return the member with this key; None if there is none."""
        return self.members.identify(secret)

    @property
    def is_open(self) -> bool:
        return self._listening is not None

    def open(self) -> None:
        """Listen for members, now and after each start; raises ConfigError. Does nothing if it is open."""
        if self.is_open:
            return
        tls, self._certificate = server_context(self._folder)
        listener = self._listen("0.0.0.0", self.port)
        self._listening = self._server.listen_also(listener, tls, {OWN_KEYS: self})
        self._save()
        log.info("invited machines come in at https://%s", ", https://".join(self.addresses()))

    async def start(self) -> None:
        """Listen for members if it was open when the lead last ended; failures are logged."""
        try:
            self.read()  # who has joined that one since this one began to start
            if self.was_open:
                self.open()
        except ConfigError as error:
            log.error("invited machines cannot come in: %s", error)  # noqa: TRY400 - a sentence for a person

    async def announce(self) -> None:
        """Announce the server on the local network for as long as a code is valid; raises ConfigError."""
        if self._announced_until:
            self._announced_until.cancel()
        if self._announcing is None:
            announcing = contextlib.ExitStack()
            name = fingerprint(self._certificate).hex()
            await asyncio.to_thread(announcing.enter_context, self._announce(self.port, name))
            self._announcing = announcing
        loop = asyncio.get_running_loop()
        self._announced_until = loop.call_later(INVITATION_SECONDS, self._hide)

    def _hide(self) -> asyncio.Future[None] | None:
        """End the announcement; the returned future is done when the network has been told, which takes a
        while.
        """
        if self._announced_until:
            self._announced_until.cancel()
        announcing, self._announced_until, self._announcing = self._announcing, None, None
        if announcing is None:
            return None
        return asyncio.get_running_loop().run_in_executor(None, announcing.close)

    async def end(self) -> None:
        """Stop listening as the lead ends; the next start opens it again if it is open now."""
        if leaving := self._hide():
            await asyncio.gather(leaving, return_exceptions=True)  # whatever ails it, the rest is to end, too

    def close(self) -> None:
        """Stop listening, now and after each start; members stay, but their connections are closed."""
        self._hide()
        if self._listening:
            self._listening.close()
        self._listening = None
        for member in self.members:
            self._server.disconnect(member.number)
        self._save()

    def addresses(self, others: Iterable[str] = ()) -> tuple[str, ...]:
        """Return host:port for each of `others`, or else for each address of this machine, the likeliest
        first.
        """
        hosts = list(others) or list(self._own_addresses())[:_MAX_ADDRESSES] or ["127.0.0.1"]
        return tuple(f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}" for host in hosts)

    def invite(self, role: MemberRole, addresses: Iterable[str] = (), *, nearby: bool = False) -> Invitation:
        """Return an invitation for a machine that reaches this one at `addresses` (hosts); none: the
        machine's own.

        nearby: for a machine that finds this one by its announcement (`announce`).
        """
        reached = () if nearby else self.addresses(addresses)
        secret = self.members.invite(Role(role))
        return Invitation(role, secret, fingerprint(self._certificate), reached)

    def join(self, secret: bytes, name: str, peer: str) -> tuple[JoinedMachine, str]:
        """Make a member and its key (`Members.join`); also raises ConfigError if it cannot be saved."""
        member, key = self.members.join(secret, name, peer)
        try:
            self._save()
        except ConfigError:
            self.members.remove(member.name)
            raise
        log.info("%s has joined from %s", member.principal, peer)
        return member, key

    def revoke(self, name: str) -> bool:
        """Remove a member and close its connections; returns False if there is none."""
        member = self.members.remove(name)
        if member:
            self._save()
            self._server.disconnect(member.number)
            log.info("%s is no member any more", member.principal)
        return member is not None

    def _save(self) -> None:
        kept = asdict(_Kept(self.is_open, tuple(self.members)))
        content = json.dumps(kept, default=lambda role: role.value, indent=1)
        try:
            write_private(self._folder / _FILE, content.encode())
        except OSError as error:
            raise ConfigError(f"cannot write down who is a member: {error}") from error


def _read(path: Path) -> _Kept:
    try:
        return _kept.validate_json(path.read_bytes())
    except FileNotFoundError:
        return _Kept()
    except (OSError, ValidationError) as error:
        raise ConfigError(f"cannot read who is a member: {path}: {error}") from error
