"""API keys and their roles.

Knows nothing of HTTP: `Keyring.identify` turns the text of a key into a `Principal`.
"""

import enum
import hashlib
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from shared.errors import ConfigError
from shared.key_file import is_key

HOW_TO_MAKE_ONE = "`openssl rand -hex 24` makes a good key"


class Role(enum.Enum):
    """The permissions of a key. client: use the API. back: send drafts. admin: everything."""

    CLIENT = "client"
    BACK = "back"
    ADMIN = "admin"


JOINED = " (joined)"
"""The end of the names of joined machines. It has a space, unlike all names of configured keys."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The sender of a request. name: the name in the log. number: distinguishes keys, even keys with the same
    name.

    key: a digest of the sender's key; empty without keys.
    """

    role: Role
    name: str
    number: int = field(default=0, compare=False)
    key: str = field(default="", compare=False, repr=False)

    @property
    def member(self) -> str | None:
        """The name under which a machine has joined (`lead invite`); None for other keys."""
        return self.name.removesuffix(JOINED) if self.name.endswith(JOINED) else None

    @property
    def id(self) -> str:
        """An identifier of the key that stays the same after a restart."""
        return hashlib.sha256(f"sender {self.key}".encode()).hexdigest()[:24]

    def __str__(self) -> str:
        return f"{self.role.value} {self.name}"


ANYONE = Principal(Role.ADMIN, "(no keys are set)")
"""The sender of every request to a lead without keys."""


@dataclass(frozen=True, slots=True, repr=False)
class Key:
    """A key as configured; its secret is never shown."""

    principal: Principal
    secret: str

    def __repr__(self) -> str:
        return f"Key({self.principal})"


class Keyring:
    """The keys of a lead, stored only as hashes. Without keys, every request may do everything."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        """Store hashes of the keys; raises ConfigError for a key that a header cannot carry, or that has two
        roles.
        """
        self._known: dict[str, Principal] = {}
        for key in keys:
            self._add(key)

    def __len__(self) -> int:
        return len(self._known)

    def _add(self, key: Key) -> None:
        if not is_key(key.secret):
            raise ConfigError(
                f"the key of {key.principal} is empty or has characters that are not allowed in a "
                "header. " + HOW_TO_MAKE_ONE
            )
        digest = key_digest(key.secret)
        principal = replace(key.principal, number=1 + len(self._known), key=digest)
        known = self._known.setdefault(digest, principal)
        if known.role is not key.principal.role:
            raise ConfigError(f"{known} and {key.principal} have the same key. A key can have only one role")

    def identify(self, secret: str | None) -> Principal | None:
        """Return the principal of a key; None if it is unknown."""
        return identify(secret or "", self._known.items()) if self._known else ANYONE


def identify(secret: str, known: Iterable[tuple[str, Principal]]) -> Principal | None:
    """Return the principal with this key; None: there is none. known: keys' digests and their principals.

    The time depends only on the number of keys: the hash of this key is compared with the hashes of all keys.
    The first bytes of a hash reveal nothing about its key.
    """
    digest, found = key_digest(secret), None
    for each, principal in known:
        if hmac.compare_digest(each, digest):
            found = principal
    return found


def key_digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def role_keys(role: Role, secrets: Iterable[str], file: Path | None) -> Iterator[Key]:
    """Yield the keys of a role, named by role and number (client-1); raises ConfigError for a file without
    keys.
    """
    secrets = list(secrets)
    if file:
        lines = list(_lines(file))
        if not lines:
            raise ConfigError(f"{file} contains no key. Write one key per line")
        secrets += lines
    for number, secret in enumerate(secrets, 1):
        yield Key(Principal(role, f"{role.value}-{number}"), secret)


def named_keys(file: Path) -> Iterator[Key]:
    """Yield keys from lines `role name key`; raises ConfigError naming an invalid line by its number only."""
    n_keys = 0
    for n_keys, line in enumerate(_lines(file), 1):
        match line.split():
            case [role, name, secret] if role in {each.value for each in Role}:
                yield Key(Principal(Role(role), name), secret)
            case _:
                raise ConfigError(
                    f"{file}, key {n_keys}: write a role (client, back or admin), a name and a "
                    "key, separated by spaces"
                )
    if not n_keys:
        raise ConfigError(f"{file} contains no key. Write `role name key` on each line")


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines that are neither blank nor comments; raises ConfigError."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is not text"
        raise ConfigError(f"cannot read the keys in {path}: {reason}") from error
    for line in text.splitlines():
        if (bare := line.strip()) and not bare.startswith("#"):
            yield bare
