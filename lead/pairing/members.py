"""The machines that have joined with a code of `lead invite`, and the open invitations.

Knows neither network nor files. A member has a key of its own, of which only the hash is kept.
"""

import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from lead.settings.keys import JOINED, Principal, Role, identify, key_digest
from shared.errors import DuoError
from shared.pairing.invitation import SECRET_BYTES

INVITATION_SECONDS = 600.0
_MAX_INVITATIONS = 64
_FIRST_NUMBER = 1 << 20
"""The first number of members' principals: above the number of keys in files."""
_KEY_BYTES = 24


class NotInvitedError(DuoError):
    """A code is wrong, was used, or has expired."""


@dataclass(frozen=True, slots=True)
class JoinedMachine:
    """A machine that has joined. digest: SHA-256 of its key, in hexadecimal. joined_at: Unix time
    in seconds.
    """

    name: str
    role: Role
    digest: str
    number: int
    joined_at: float

    @property
    def principal(self) -> Principal:
        """The machine as the sender of requests."""
        return Principal(self.role, self.name + JOINED, self.number, self.digest)


@dataclass(frozen=True, slots=True)
class KeptInvitation:
    """An open invitation, as stored. digest: SHA-256 of the code's secret, in hexadecimal. until: Unix time
    in seconds.
    """

    digest: str
    role: Role
    until: float


class Members:
    """The members (machines and programs that have joined), and the open invitations."""

    def __init__(
        self,
        known: Iterable[JoinedMachine] = (),
        invited: Iterable[KeptInvitation] = (),
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        """Both clocks return seconds. `clock` measures the age of codes, and goes on while the machine
        sleeps. invited: invitations of an earlier start, valid until their times on `wall_clock`.
        """
        self.n_refused = 0
        """The number of attempts to join with a wrong, used or old code since the start."""
        self._members = {member.name: member for member in known}
        self._clock = clock
        self._wall_clock = wall_clock
        # by SHA-256 of the secret: as what, until when
        self._invited = {
            each.digest: (each.role, clock() + min(each.until - wall_clock(), INVITATION_SECONDS))
            for each in invited
        }

    def __iter__(self) -> Iterator[JoinedMachine]:
        """Iterate over the machines in the order in which they joined."""
        return iter(self._members.values())

    @property
    def n_invited(self) -> int:
        """The number of codes that can still be used."""
        self._drop_old()
        return len(self._invited)

    @property
    def invitations(self) -> list[KeptInvitation]:
        """The invitations that can still be used."""
        self._drop_old()
        ahead = self._wall_clock() - self._clock()
        return [KeptInvitation(each, role, until + ahead) for each, (role, until) in self._invited.items()]

    def withdraw_invitations(self) -> None:
        """Invalidate all codes made so far."""
        self._invited.clear()

    def invite(self, role: Role) -> bytes:
        """Return the secret of a new code, which works once within `INVITATION_SECONDS`.

        The machine that joins with it gets this role.
        """
        self._drop_old()
        while len(self._invited) >= _MAX_INVITATIONS:
            del self._invited[next(iter(self._invited))]
        secret = secrets.token_bytes(SECRET_BYTES)
        self._invited[_digest(secret)] = role, self._clock() + INVITATION_SECONDS
        return secret

    def join(self, secret: bytes, name: str) -> tuple[JoinedMachine, str]:
        """Add a member called `name` with the role of the code; return it and its key. Raises
        NotInvitedError.

        Guesses are not slowed down: nobody guesses 96 bits, and an honest machine may have the same address.
        """
        self._drop_old()
        invited = self._invited.pop(_digest(secret), None)
        if invited is None:
            self.n_refused += 1
            raise NotInvitedError(
                "the code is wrong, already used, or older than ten minutes. `lead invite` makes a new code"
            )
        return self.add(invited[0], name)

    def add(self, role: Role, name: str) -> tuple[JoinedMachine, str]:
        """Add a member with this role; return it and its key."""
        key = secrets.token_hex(_KEY_BYTES)  # never begins with -, as an option would
        number = 1 + max((each.number for each in self), default=_FIRST_NUMBER)
        member = JoinedMachine(self._unique(name), role, key_digest(key), number, self._wall_clock())
        self._members[member.name] = member
        return member, key

    def remove(self, name: str) -> JoinedMachine | None:
        """Remove a member, whose key is then refused; return None if there is no such member."""
        return self._members.pop(name, None)

    def identify(self, key: str | None) -> Principal | None:
        """Return the member with this key; None if there is none."""
        return identify(key or "", ((each.digest, each.principal) for each in self))

    def _drop_old(self) -> None:
        now = self._clock()
        self._invited = {digest: each for digest, each in self._invited.items() if each[1] > now}

    def _unique(self, name: str) -> str:
        plain = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:48] or "machine"
        names = (plain, *(f"{plain}-{i}" for i in range(2, len(self._members) + 3)))
        return next(each for each in names if each not in self._members)


def _digest(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()
