"""The code with which one machine joins a lead: role, addresses, certificate fingerprint, one-time secret."""

import base64
import binascii
import hashlib
import ssl
import zlib
from dataclasses import dataclass
from typing import Final, Literal

from shared.errors import ConfigError

MemberRole = Literal["back", "client"]
"""The rights of a machine that joins, which the lead decides when it makes a code."""
_PREFIXES: Final[dict[MemberRole, str]] = {"back": "duo2b", "client": "duo2c"}
_ROLES: Final = {prefix: role for role, prefix in _PREFIXES.items()}
_PREFIX_LENGTH: Final = 5
SECRET_BYTES: Final = 12
_FINGERPRINT_BYTES: Final = 16
"""The bytes of a SHA-256: to impersonate a lead, a certificate with the same 128 bits is needed."""
_CHECKSUM_BYTES: Final = 2
_FIXED_BYTES: Final = SECRET_BYTES + _FINGERPRINT_BYTES + _CHECKSUM_BYTES


@dataclass(frozen=True, slots=True)
class Invitation:
    """An invitation to join a lead.

    addresses: host:port, the likeliest first; empty: the lead is found on the local network. fingerprint: of
    the lead's certificate. role: for information only, as the lead remembers the role for the secret.
    """

    role: MemberRole
    secret: bytes
    fingerprint: bytes
    addresses: tuple[str, ...]

    def code(self) -> str:
        """Return the code to copy: letters, digits, `-` and `_`."""
        content = self.secret + self.fingerprint + ",".join(self.addresses).encode("ascii")
        prefix = _PREFIXES[self.role]
        data = _checksum(prefix, content) + content
        return prefix + base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")

    @classmethod
    def parse(cls, code: str) -> "Invitation":
        """Parse a code; raises ConfigError."""
        code = "".join(code.split())
        prefix, digits = code[:_PREFIX_LENGTH], code[_PREFIX_LENGTH:]
        role = _ROLES.get(prefix)
        content = role and _content(prefix, digits)
        if not role or not content:
            raise ConfigError(
                "this is not a whole code of `lead invite`: it begins with duo2, and is copied to its end"
            )
        secret, rest = content[:SECRET_BYTES], content[SECRET_BYTES:]
        addresses = rest[_FINGERPRINT_BYTES:].decode("ascii", "replace").split(",")
        return cls(role, secret, rest[:_FINGERPRINT_BYTES], tuple(filter(None, addresses)))


def _content(prefix: str, digits: str) -> bytes | None:
    """Return the bytes in a code's digits; None if it was not copied correctly."""
    try:
        data = base64.b64decode(digits + "=" * (-len(digits) % 4), b"-_", validate=True)
    except (ValueError, binascii.Error):
        return None
    content = data[_CHECKSUM_BYTES:]
    is_whole = len(data) >= _FIXED_BYTES and data[:_CHECKSUM_BYTES] == _checksum(prefix, content)
    return content if is_whole else None


def fingerprint(certificate: str) -> bytes:
    """Return the fingerprint of the first certificate in PEM text."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).digest()[:_FINGERPRINT_BYTES]


def _checksum(prefix: str, content: bytes) -> bytes:
    """Return a checksum, which distinguishes a mistyped code from a code that the lead does not know."""
    return (zlib.crc32(prefix.encode() + content) & 0xFFFF).to_bytes(_CHECKSUM_BYTES)
